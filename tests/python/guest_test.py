"""The package in a PyTorch process: allocators, forks, threads, bit-identical results."""

import os
import re

import pytest
import trainer

pytest.importorskip("torch")

REAL = os.path.join(trainer.BUILD, "lib", "libplumbline_agent.so")
ALLOCATORS = [
    "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
    "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
    "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2",
]

# `first` and `second` are the two imports in either order; the agent is loaded between or after.
ORDER = """
    {first}
    def open_run():
        import plumbline
        return plumbline.init(run="exp1", record="runs", every=1)
    run = None
    if {early}:
        run = open_run()
        with run.step(0):
            run.scalar("loss", 1.0)
    import torch
    run = run or open_run()
    model = torch.nn.Linear(64, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    for i in range(1, 20):
        with run.step(i):
            logits = model(torch.randn(256, 64))
            chosen = logits.topk(2).indices
            run.observe_routing("a", logits, topk_indices=chosen, top_k=2)
            loss = logits.square().mean()
            loss.backward()
            optimizer.step()
            run.scalar("loss", loss)
    run.flush()
    run.finish(60)
    print("done")
"""


def agents():
    """Returns the stand-in, and the real agent if it was built."""
    yield pytest.param(trainer.TEST_AGENT, id="stand-in")
    mark = [] if os.path.exists(REAL) else [pytest.mark.skip(reason="the agent is not built")]
    yield pytest.param(None, id="agent", marks=mark)


# Each case imports torch in a separate process. The stand-in is used only if the agent is not built.
BEST_AGENT = [None] if os.path.exists(REAL) else [trainer.TEST_AGENT]


@pytest.mark.parametrize("agent", BEST_AGENT)
@pytest.mark.parametrize("allocator", ["", *ALLOCATORS], ids=lambda p: os.path.basename(p) or "libc")
@pytest.mark.parametrize("early", [True, False], ids=["before-torch", "after-torch"])
def test_next_to_torch(tmp_path, agent, allocator, early):
    if allocator and not os.path.exists(allocator):
        pytest.skip(f"{allocator} is not installed")
    code = ORDER.format(first="import plumbline" if early else "import torch, plumbline", early=early)
    extra = {"LD_PRELOAD": allocator} if allocator else {}
    outcome = trainer.run(code, tmp_path, agent=agent, **extra).ok()
    assert outcome.out == "done\n" and outcome.err == ""


@pytest.mark.parametrize("agent", agents())
def test_data_loader_workers(tmp_path, agent):
    code = """
    import multiprocessing, torch, plumbline
    run = plumbline.init(run="exp1", record="runs", every=1)
    class Data(torch.utils.data.Dataset):
        def __len__(self): return 64
        def __getitem__(self, i):
            run.scalar("child", i)                     # a worker may hold the run: its calls return
            run.observe_routing("a", torch.ones(2, 2), top_k=1)
            with run.step(1000 + i), run.span("data"): pass
            return torch.full((4,), float(i))
    run.step(0).__enter__()
    run.observe_routing("a", torch.ones(2, 2), top_k=1)  # the agent is loaded
    run.step(0).__exit__()
    seen = 0
    for epoch in range(2):
        loader = torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=2)
        for n, batch in enumerate(loader):
            with run.step(1 + epoch * 100 + n):
                run.observe_routing("a", torch.ones(2, 2), top_k=1)
                seen += len(batch)
    pool = multiprocessing.get_context("fork").Process(target=run.finish)
    pool.start(); pool.join(); assert pool.exitcode == 0
    assert run.finish(60)
    print(seen)
    """
    outcome = trainer.run(code, tmp_path, agent=agent).ok()
    assert outcome.out == "128\n"
    assert re.fullmatch(r"plumbline: finish: this process was forked [^\n]*\n", outcome.err), outcome.err  # only of the fork, once
    if agent:
        assert len(outcome.only("routing")) == 17
        assert not [c for c in outcome.calls if "child" in c or " 10" in c and "step_begin 10" in c and len(c) > 14]
        assert len(outcome.only("close")) == 1


@pytest.mark.parametrize("agent", agents())
def test_threads(tmp_path, agent):
    code = """
    import threading, torch, plumbline
    run = plumbline.init(run="exp1", record="runs", every=1)
    def work(n):
        for i in range(100):
            rows = n + 2
            run.observe_routing(f"layers.{n}", torch.full((rows, 3), float(n)), top_k=1,
                                topk_indices=torch.full((rows, 1), n % 3))
            run.scalar(f"loss.{n}", i)
    with run.step(0):
        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for t in threads: t.start()
        for t in threads: t.join()
    run.finish(60)
    """
    outcome = trainer.run(code, tmp_path, agent=agent).ok()
    assert outcome.err == ""
    if agent:  # each thread's tensors arrive with their own shapes and values
        lines = outcome.only("routing")
        assert len(lines) == 600
        for line in set(lines):
            n = int(line.split("layers.")[1].split("/")[0])
            rows = n + 2
            cells = rows * 3
            assert f"scores=2:32[{rows},3]{n * cells * (cells + 1) // 2:g}" in line
            assert f"topk_indices=0:64[{rows},1]" in line


@pytest.mark.parametrize("agent", agents())
def test_losses_are_bit_identical(tmp_path, agent):
    code = """
    import sys, torch, plumbline
    torch.manual_seed(7); torch.use_deterministic_algorithms(True)
    run = plumbline.init(run="exp1", record="runs", every=1)
    gate, experts = torch.nn.Linear(16, 4), torch.nn.Linear(16, 4)
    optimizer = torch.optim.Adam([*gate.parameters(), *experts.parameters()], lr=1e-2)
    for i in range(30):
        with run.step(i):
            x = torch.randn(64, 16)
            logits = gate(x)
            weights, chosen = logits.softmax(-1).topk(2)
            run.observe_routing("gate", logits, topk_indices=chosen, probs=weights, top_k=2,
                                score_function="softmax", capacity="none")
            loss = (experts(x).gather(1, chosen) * weights).sum(1).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            run.scalar("loss", loss)
            print(loss.item().hex())
    run.finish(60)
    """
    on = trainer.run(code, tmp_path, agent=agent).ok()
    off = trainer.run(code, tmp_path, agent=agent, PLUMBLINE_DISABLE="1").ok()
    assert on.out == off.out and on.out.count("0x") == 30


@pytest.mark.parametrize("agent", agents())
def test_own_protobuf_messages(tmp_path, agent):
    """A trainer that uses protobuf from Python, with our messages' simple names."""
    pytest.importorskip("google.protobuf")
    code = """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2
    import plumbline
    def own(n):
        file = descriptor_pb2.FileDescriptorProto(name=f"evidence{n}.proto", package=f"trainer{n}")
        evidence = file.message_type.add(name="Evidence")
        evidence.field.add(name="value", number=1, type=9, label=1)
        pool = descriptor_pool.Default()
        pool.Add(file)
        found = pool.FindMessageTypeByName(f"trainer{n}.Evidence")
        Evidence = message_factory.MessageFactory(pool).GetPrototype(found)
        assert Evidence.FromString(Evidence(value="x" * n).SerializeToString()).value == "x" * n
        tree = struct_pb2.Struct(); tree.update({"a": [1, {"b": None}]})
        assert struct_pb2.Struct.FromString(tree.SerializeToString()) == tree
    own(1)
    run = plumbline.init(run="exp1", record="runs", every=1)
    for i in range(10):
        with run.step(i):
            run.observe_routing("a", [[0.5, 0.25], [0.1, 0.2]], topk_indices=[[0], [1]], top_k=1)
            run.scalar("loss", 1.0)
        own(2 + i)
    run.finish(60)
    own(100)
    print("done")
    """
    outcome = trainer.run(code, tmp_path, agent=agent).ok()
    assert outcome.out == "done\n" and outcome.err == ""
