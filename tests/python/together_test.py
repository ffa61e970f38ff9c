"""Observations that are sent together: the calls to the agent, the tensors kept alive, and the use in run.watch."""

import os

import trainer
from trainer import BUILD, OPEN

# Host memory that is marked as on device 0.
ON_GPU = """
    import ctypes, gc, os, sys, threading, types, weakref, torch
    class OnGpu(torch.Tensor):
        is_cpu, is_cuda = False, True
        def get_device(self): return 0
    torch.cuda.current_stream = lambda index: types.SimpleNamespace(cuda_stream=0x70)
    def on_gpu(*shape):
        return torch.ones(*shape).as_subclass(OnGpu)
"""


def test_it_is_the_agents(tmp_path):
    outcome = trainer.run_warm(
        OPEN
        + ON_GPU
        + """
    with run.together() as same:
        assert same is run  # nothing was due yet: the agent is not there
    with run.step(0):
        run.observe_tensor("a", torch.ones(2))
        with run.together():
            run.observe_tensor("b", on_gpu(3))
            with run.together():
                run.observe_tensor("c", torch.ones(4))
        try:
            with run.together():
                raise KeyError("the trainer's own")
        except KeyError:
            pass
        run.observe_tensor("d", on_gpu(5))
    run.finish()
    with run.together():  # it has ended
        run.observe_tensor("e", on_gpu(5))
    assert plumbline.init(record="", server="", run="none").together() is not None
    """,
        tmp_path,
    ).ok()
    requested = [c.split("/")[0] for c in outcome.calls if c.startswith(("together", "tensor"))]
    assert requested == [
        "tensor a", "together_begin", "tensor b", "together_begin", "tensor c", "together_end", "together_end",
        "together_begin", "together_end", "tensor d",
    ]  # fmt: skip


def test_what_waits_is_kept_alive_until_it_leaves(tmp_path):
    trainer.run_warm(
        OPEN
        + ON_GPU
        + """
    def observe(tensor):
        run.observe_tensor("b", tensor)
        return weakref.ref(tensor)
    with run.step(0):
        run.observe_tensor("a", torch.ones(2))
        assert observe(on_gpu(3))() is None  # outside it has been launched
        with run.together():
            waiting, host = observe(on_gpu(3)), observe(torch.ones(3))
            with run.together():
                inner = observe(on_gpu(3))
            assert waiting() is not None and host() is None
            assert inner() is None
            others = []
            thread = threading.Thread(target=lambda: others.append(observe(on_gpu(3))))
            thread.start()
            thread.join()
            assert others[0]() is None  # of other threads nothing waits
        assert waiting() is None
    run.finish()
    """,
        tmp_path,
    ).ok()


def test_what_is_kept_is_bounded(tmp_path):
    outcome = trainer.run_warm(
        OPEN
        + ON_GPU
        + """
    with run.step(0):
        run.observe_tensor("a", torch.ones(2))
        with run.together():
            kept = []
            for i in range(5):
                large = on_gpu(6 << 20)  # 24 MiB
                kept.append(weakref.ref(large))
                run.observe_tensor("b", large)
                del large
                assert sum(r() is not None for r in kept) <= 2
    run.finish()
    """,
        tmp_path,
    ).ok()
    requested = [c.split("/")[0].split("_")[-1] for c in outcome.calls if c.startswith(("together", "tensor b"))]
    some = ["tensor b", "tensor b", "tensor b", "end", "begin"]
    assert requested == ["begin", *some, "tensor b", "tensor b", "end"]


def test_watch_lets_them_leave_together(tmp_path):
    outcome = trainer.run_warm(
        OPEN
        + """
    import torch
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    run.watch(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    run.finish()
    """,
        tmp_path,
    ).ok()
    within, seen = 0, {"tensor": set(), "update": set()}
    steps = 0
    for call in outcome.calls:
        steps += call.startswith("step_begin")
        if call == "together_begin":
            within += 1
        elif call == "together_end":
            within -= 1
        elif call.startswith(("tensor ", "update ")) and steps > 1:
            seen[call.split()[0]].add((call.split()[1], within))
    assert within == 0
    assert {n for _, n in seen["tensor"] | seen["update"]} == {1}, seen
    names = {name.rpartition("/")[2] for name, _ in seen["tensor"]}
    assert names >= {"gradient", "weight"}
    assert len(seen["update"]) == 4


def launches(tmp_path, together):
    """Forty tensors on a device that does not exist, through the agent."""
    fake = os.path.join(BUILD, "tests", "kernels", "libfake_device.so")
    return trainer.run_warm(
        OPEN
        + ON_GPU
        + f"""
    fake = ctypes.CDLL({fake!r})
    class Control(ctypes.Structure):  # tests/kernels/device/fake_device.h
        _fields_ = [("_before", ctypes.c_void_p * 7), ("calls", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p))]
    calls = Control.in_dll(fake, "plumbline_fake_device").calls
    tensors = [on_gpu(10 + i) for i in range(40)]
    with run.step(0):
        run.observe_tensor("first", tensors[0])
        before = calls(b"measure_tensors"), calls(b"gather")
        if {together}:
            with run.together():
                for i, tensor in enumerate(tensors):
                    run.observe_tensor(f"w{{i}}", tensor * 2)
        else:
            for i, tensor in enumerate(tensors):
                run.observe_tensor(f"w{{i}}", tensor * 2)
        print(calls(b"measure_tensors") - before[0], calls(b"gather") - before[1])
    assert run.flush(60)
    run.finish(60)
    """,
        tmp_path,
        agent=None,
        PLUMBLINE_CUDA_LIBRARY=fake,
    ).ok()


def test_launches_are_fewer(tmp_path):
    alone = launches(tmp_path, False)
    assert alone.out == "40 0\n", alone.err
    together = launches(tmp_path, True)
    assert together.out == "3 3\n", together.err
