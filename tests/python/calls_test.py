"""What the package hands to the agent, and what it says about mistakes."""

import ctypes
import json
import subprocess

import trainer

OPEN = """
    import plumbline, warnings
    warnings.simplefilter("always")
    run = plumbline.init(run="exp1", record="runs", every=1)
"""


def routing_lines(tmp_path, body):
    """The tensors of the routing calls that `body` (within step 3) made."""
    body = "\n".join("        " + line for line in body.strip().splitlines())
    code = f"{OPEN}    with run.step(3):\n{body}\n    run.finish()\n"
    outcome = trainer.run(code, tmp_path).ok()
    return ["scores=" + line.partition("scores=")[2] for line in outcome.only("routing ")]


def routing(tmp_path, body):
    (line,) = routing_lines(tmp_path, body)
    return line


def test_whole_run(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    for i in range(3):
        with run.step(i) as same:
            assert same is run
            with run.span("forward"):
                pass
            run.scalar("loss", 2.5)
            run.scalar("bad", float("nan"))
            with run.span("collective", "all-reduce"):
                pass
    assert run.flush(timeout=1.5) is True
    assert run.finish() is True
    run.finish()
    run.scalar("late", 1)
    """,
        tmp_path,
        RANK="1",
        WORLD_SIZE="4",
    ).ok()
    assert outcome.err == ""
    assert outcome.calls[0] == (
        "open run=exp1 server= record=runs attempt=0 role=1 rank=1/4 every=1 budget=0.000000"
    )
    assert outcome.calls[1:8] == [
        "step_begin 0",
        "span_begin step=0 forward forward #1",
        "span_end #1",
        "scalar step=0 loss=2.5",
        "scalar step=0 bad=nan",
        "span_begin step=0 collective all-reduce #2",
        "span_end #2",
    ]
    assert outcome.calls[-2:] == ["flush 1500", "close"]
    assert not outcome.only("scalar step=0 late")


def test_every_argument_arrives(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    import torch
    T, E, k = 4, 6, 2
    with run.step(3):
        run.observe_routing(
            "layers.3", torch.ones(T, E), topk_indices=torch.ones(T, k, dtype=torch.int32),
            keep_mask=torch.ones(T, k, dtype=torch.bool), routing_map=torch.ones(T, E, dtype=torch.uint8),
            probs=torch.ones(T, E, dtype=torch.bfloat16), expert_bias=torch.ones(E, dtype=torch.float64),
            sequence_id=torch.zeros(T, dtype=torch.int64), position=torch.arange(T),
            padding_mask=torch.zeros(T, dtype=torch.bool), pool_id=torch.ones(T, dtype=torch.int64),
            top_k=2, score_function="sigmoid", capacity=7, groups=3, top_groups=2, group_score="sum2",
            pool="sequence", flatten="batch-major", randomness="jitter", bias_captured="after",
            mode="eval")
    run.finish()
    """,
        tmp_path,
    ).ok()
    assert outcome.only("routing") == [
        "routing layers.3/routing step=3 top_k=2 logits=1 function=2 capacity=2:7 groups=3:2:2 pool=2 "
        "flatten=2 bias=2 randomness=jitter mode=eval scores=2:32[4,6]300 expert_bias=2:64[6]21 "
        "topk_indices=0:32[4,2]36 keep_mask=6:8[4,2]36 routing_map=1:8[4,6]300 probs=4:16[4,6]300 "
        "sequence_id=0:64[4]0 position=0:64[4]20 padding_mask=6:8[4]0 pool_id=0:64[4]10"
    ]


KINDS = [
    ("torch.ones(3, 2, requires_grad=True)", "2:32[3,2]21"),
    ("torch.ones(2, 3).t()", "2:32[3,2]21"),
    ("torch.arange(6.).reshape(2, 3).t()", "2:32[3,2]65"),  # 0 3 1 4 2 5
    ("torch.arange(12.)[2:8].reshape(3, 2)", "2:32[3,2]112"),
    ("torch.arange(6.)[::2].reshape(3, 1).expand(3, 2)", "2:32[3,2]58"),  # stride 0
    ("torch.nn.Parameter(torch.ones(3, 2))", "2:32[3,2]21"),
    ("torch.imag(torch.full((3, 2), 1j).conj())", "2:32[3,2]-21"),  # lazily negated
    ("numpy.arange(6.).reshape(3, 2)", "2:64[3,2]70"),
    ("numpy.arange(6.).reshape(3, 2)[::-1, ::-1]", "2:64[3,2]35"),  # negative strides
    ("numpy.ones((3, 2), dtype='f4', order='F')", "2:32[3,2]21"),
    ("[[0, 1.0], [2, 3], [4, 5]]", "2:64[3,2]70"),
    ("((1.0, 2.0),)", "2:64[1,2]5"),
    ("torch.ones(0, 2)", "2:32[0,2]0"),
    ("torch.ones(2, 3, 4)", "2:32[6,4]300"),  # [S,B,E]
    ("torch.full((1, 1), float('nan'))", "2:32[1,1]nan"),
]


def test_kinds_of_tensors(tmp_path):
    body = "import torch, numpy\n" + "\n".join(
        f"run.observe_routing('{i}', {expression}, top_k=1)" for i, (expression, _) in enumerate(KINDS)
    )
    for (expression, expected), line in zip(KINDS, routing_lines(tmp_path, body), strict=True):
        assert (expression, line) == (expression, "scores=" + expected)


def test_dlpack_of_other_libraries(tmp_path):
    line = routing(
        tmp_path,
        """
import torch
class Foreign:
    def __init__(self, tensor): self.tensor = tensor
    def __dlpack__(self, stream=None): return self.tensor.__dlpack__()
run.observe_routing("a", Foreign(torch.arange(6.).reshape(2, 3).t()), top_k=1)""",
    )
    assert line == "scores=2:32[3,2]65"


# A CUDA library and a torch with CUDA, as far as the package can tell: host memory that says it lies
# on device 3, streams that are numbers.
ON_DEVICE = """
import ctypes, sys, types, torch
from plumbline import _tensors
told = []
class Foreign:
    def __init__(self, tensor): self.tensor = tensor
    def __dlpack_device__(self): return (2, 3)
    def __dlpack__(self, stream=None):
        told.append(stream)
        capsule = self.tensor.__dlpack__()
        t = _tensors._DLTensor.from_address(_tensors._capsule_pointer(capsule, b"dltensor"))
        t.device_type, t.device_id = 2, 3
        return capsule
class OnGpu(torch.Tensor):
    is_cpu, is_cuda = False, True
    def get_device(self): return 3
def stream(index):
    assert index == 3
    return types.SimpleNamespace(cuda_stream=0x70)
"""


def places(tmp_path, body):
    """Device and stream of each routing call, and what else was printed."""
    body = "\n".join("        " + line for line in (ON_DEVICE + body).strip().splitlines())
    outcome = trainer.run(f"{OPEN}    with run.step(3):\n{body}\n    run.finish()\n", tmp_path).ok()
    lines = outcome.only("routing ")
    return [" ".join(w for w in x.split() if w.startswith(("device=", "stream="))) for x in lines], outcome.out


def test_torch_tensors_go_on_torchs_current_stream(tmp_path):
    lines, _ = places(
        tmp_path,
        """
torch.cuda.current_stream = stream
run.observe_routing("a", torch.ones(3, 2).as_subclass(OnGpu), top_k=1,
                    topk_indices=Foreign(torch.ones(3, 1)))
assert told == [0x70], told""",
    )
    assert lines == ["device=2:3 stream=0x70"]


def test_cpu_tensors_ask_no_stream(tmp_path):
    lines, out = places(
        tmp_path,
        """
def never(*_): raise AssertionError("asked")
torch.cuda.current_stream = torch.cuda.is_initialized = never
run.observe_routing("a", torch.ones(3, 2), top_k=1)
print("cuda" if torch.cuda._initialized else "none")""",
    )
    assert (lines, out) == ([""], "none\n")


def test_dlpack_is_told_the_stream(tmp_path):
    lines, _ = places(
        tmp_path,
        """
run.observe_routing("a", Foreign(torch.ones(3, 2)), top_k=1)  # nobody's stream: the default one
torch.cuda.is_initialized, torch.cuda.current_stream = (lambda: True), stream
run.observe_routing("a", Foreign(torch.ones(3, 2)), top_k=1)
cupy = sys.modules["cupy"] = types.ModuleType("cupy")
cupy.ndarray = Foreign
cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=0x90))
run.observe_routing("a", Foreign(torch.ones(3, 2)), top_k=1)
assert told == [1, 0x70, 0x90], told""",
    )
    assert lines == ["device=2:3 stream=(nil)", "device=2:3 stream=0x70", "device=2:3 stream=0x90"]


def test_torch_is_not_imported(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    import sys
    with run.step(3):
        run.observe_routing("a", [[1.0, 2.0]], top_k=1)
    run.finish()
    print("torch" in sys.modules)
    """,
        tmp_path,
    ).ok()
    assert outcome.out == "False\n"


def test_integers_masks_and_switch_routing(tmp_path):
    line = routing(
        tmp_path,
        """
import torch, numpy
run.observe_routing("a", torch.ones(3, 2), topk_indices=torch.tensor([1, 0, 1]),
                    keep_mask=[True, False, True], sequence_id=numpy.array([5, 5, 6], dtype="i4"),
                    padding_mask=numpy.array([False, False, True]))""",
    )
    assert line == (
        "scores=2:32[3,2]21 topk_indices=0:64[3,1]4 keep_mask=6:8[3,1]4 "
        "sequence_id=0:32[3]33 padding_mask=6:8[3]3"
    )


def test_top_k_is_read_off_the_indices(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    import torch
    with run.step(0):
        run.observe_routing("a", torch.ones(3, 8), topk_indices=torch.zeros(3, 4, dtype=torch.int64))
    """,
        tmp_path,
    ).ok()
    assert "top_k=4" in outcome.only("routing")[0]


def test_logits_or_scores(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    import torch
    a, b = torch.ones(1, 2), torch.zeros(1, 2)
    with run.step(0):
        run.observe_routing("1", a, router_scores=b, top_k=1)
        run.observe_routing("2", a, router_scores=b, top_k=1, score_function="softmax")
        run.observe_routing("3", router_scores=b, top_k=1, capacity="none")
        run.observe_routing("4", router_scores=b, top_k=1, capacity=0)
    """,
        tmp_path,
    ).ok()
    lines = outcome.only("routing")
    assert "logits=0" in lines[0] and "scores=2:32[1,2]0" in lines[0]
    assert "logits=1" in lines[1] and "scores=2:32[1,2]3" in lines[1]
    assert "logits=0" in lines[2] and "capacity=1:0" in lines[2]
    assert "capacity=2:0" in lines[3]


MISTAKES = [
    ("run.observe_routing('a', torch.ones(3), top_k=1)", "router_logits: expected 2 axes"),
    ("run.observe_routing('a', 'text', top_k=1)", "a torch tensor, a numpy array or a list"),
    ("run.observe_routing('a', torch.ones(2, 2))", "top_k is 0"),
    ("run.observe_routing('a', top_k=1)", "router_logits or router_scores"),
    ("run.observe_routing('a', torch.ones(2, 2, dtype=torch.complex64), top_k=1)", "complex64"),
    ("run.observe_routing('a', torch.ones(2, 2).to_sparse(), top_k=1)", "sparse"),
    ("run.observe_routing('a', torch.ones(2, 2, device='meta'), top_k=1)", "meta"),
    ("run.observe_routing('a', numpy.ones((2, 2), dtype='>f4'), top_k=1)", "byte order"),
    ("run.observe_routing('a', [[1.0, 2.0], [3.0]], top_k=1)", "equally long"),
    ("run.observe_routing('a', [1.0, [2.0]], top_k=1)", "equally deep"),
    ("run.observe_routing('a', torch.ones(2, 3, 4).transpose(0, 1), top_k=1)", "merged"),
    ("run.observe_routing('a', torch.ones(2, 2), top_k=1, capacity='most')", "capacity is 'most'"),
    ("run.observe_routing('a', torch.ones(2, 2), top_k=1, pool='lake')", "pool is 'lake'"),
    ("run.observe_routing('a', torch.ones(2, 2), top_k=-1)", "top_k is -1"),
    ("run.observe_routing('a', torch.ones(2, 2), top_k=1, mode=3)", "mode is 3"),
    ("run.observe_routing(['a'], torch.ones(2, 2), top_k=1)", "['a']"),
    ("run.observe_routing(None, torch.ones(2, 2), top_k=1)", "None"),
    ("run.observe_routing('', torch.ones(2, 2), top_k=1)", "layer is missing"),
    ("run.scalar('loss', 'high')", "scalar('loss')"),
    ("run.scalar(3, 1.0)", "scalar(3)"),
    ("run.scalar('', 1.0)", "name is missing"),
    ("run.span('lunch').__enter__()", "lunch"),
    ("run.span(3).__enter__()", "span(3"),
    ("run.step('now').__enter__()", "expected an integer"),
    ("run.step(0).__enter__()", "steps rise"),
]


def test_mistakes_warn_once_or_raise(tmp_path):
    body = """
    import torch, numpy, json, sys
    for index, call in enumerate(json.loads(sys.argv[1])):
        outcomes = []
        for strict in (False, True):
            run = plumbline.init(run=f"mistake{index}", record="runs", every=1, strict=strict)
            run.step(3).__enter__()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    for _ in range(3):
                        exec(call)
                    outcomes.append([str(w.message) for w in caught])
                except plumbline.PlumblineError as error:
                    outcomes.append([str(error)])
            run.finish()
        print(json.dumps(outcomes))
    """
    calls = [call for call, _ in MISTAKES]
    outcome = trainer.run(OPEN + body, tmp_path, arguments=[json.dumps(calls)]).ok()
    assert not outcome.only("routing")
    for (call, said), line in zip(MISTAKES, outcome.out.splitlines(), strict=True):
        relaxed, strict = json.loads(line)
        assert len(relaxed) == 1 and "said once" in relaxed[0] and said in relaxed[0], (call, relaxed)
        assert len(strict) == 1 and "said once" not in strict[0] and said in strict[0], (call, strict)


def test_errors_as_warnings_do_not_reach_the_trainer(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    warnings.simplefilter("error")
    with run.step(0):
        run.observe_routing("a", "nonsense", top_k=1)
    """,
        tmp_path,
    ).ok()
    assert "plumbline: observe_routing('a')" in outcome.err


def test_outside_of_a_step(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    import torch
    for _ in range(2):
        run.observe_routing("a", torch.ones(2, 2), top_k=1)
        run.scalar("loss", 1.0)
    with run.step(0):
        run.observe_routing("a", torch.ones(2, 2), top_k=1)
    """,
        tmp_path,
    ).ok()
    assert outcome.err.count("no step is open") == 2
    assert len(outcome.only("routing")) == 1 and not outcome.only("scalar")


def test_an_exception_in_a_step_ends_it(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    try:
        with run.step(0), run.span("forward"):
            raise ValueError("the trainer's own")
    except ValueError:
        pass
    with run.step(1):
        pass
    """,
        tmp_path,
    ).ok()
    assert outcome.calls[1:] == [
        "step_begin 0",
        "span_begin step=0 forward forward #1",
        "span_end #1",
        "step_end 0",
        "step_begin 1",
        "step_end 1",
        "close",
    ]


def test_not_due_calls_stay_in_python(tmp_path):
    outcome = trainer.run(
        OPEN.replace("every=1", "every=10")
        + """
    import torch
    for i in range(25):
        with run.step(i):
            run.observe_routing("a", torch.ones(2, 2), top_k=1)
            before = run._observe_routing
            run.observe_routing("a", torch.ones(2, 2), top_k=1)
            if i % 10:  # a foreign call would fail
                run._observe_routing = None
                run.observe_routing("a", "never looked at", top_k=1)
                run._observe_routing = before
    """,
        tmp_path,
    ).ok()
    assert outcome.err == ""
    assert [c.split()[2] for c in outcome.only("routing")] == [
        s for s in ("step=0", "step=10", "step=20") for _ in range(2)
    ]


def test_refused_open(tmp_path):
    code = """
    import plumbline
    run = plumbline.init({})
    with run.step(0):
        run.observe_routing("a", [[1.0]], top_k=1)
        run.scalar("loss", 1)
        with run.span("data"): pass
    assert run.flush() and run.finish()
    assert isinstance(run, plumbline.NoRun)
    """
    for arguments, said in [
        ("", "neither server nor record"),
        ("record='r', rank=3, world_size=2", "rank 3 of world size 2"),
        ("record='r', role='cook'", "role is 'cook'"),
        ("record='r', budget=7", "budget"),
    ]:
        outcome = trainer.run(code.format(arguments), tmp_path).ok()
        assert said in outcome.err and not outcome.calls
        strict = trainer.run(code.format(f"strict=True, {arguments}"), tmp_path)
        assert strict.code == 1 and said in strict.err


def test_the_spool_is_an_option(tmp_path):
    code = """
    import plumbline
    run = plumbline.init("exp1", server="127.0.0.1:1", spool="kept", spool_bytes=1 << 20)
    with run.step(0):
        run.observe_routing("a", [[1.0]], top_k=1)
    """
    outcome = trainer.run(code, tmp_path)
    assert outcome.calls[0].endswith("budget=0.000000 spool=kept spool_bytes=1048576")


def test_missing_library_is_one_warning(tmp_path):
    code = """
    import plumbline
    for _ in range(2):
        run = plumbline.init(run="exp1", record="r")
    with run.step(0):
        run.observe_routing("a", [[1.0]], top_k=1)
    run.finish()
    """
    outcome = trainer.run(code, tmp_path, PLUMBLINE_LIBRARY="/nonexistent/lib.so").ok()
    assert "libplumbline.so cannot be loaded" in outcome.err
    assert outcome.err.count("RuntimeWarning") == 1


def test_missing_agent_is_one_warning(tmp_path):
    code = OPEN + """
    for i in range(3):
        with run.step(i):
            run.observe_routing("a", [[1.0]], top_k=1)
            run.scalar("loss", 1)
    run.finish()
    """
    outcome = trainer.run(code, tmp_path, agent="/nonexistent/agent.so").ok()
    assert outcome.err.count("\n") == 1 and "/nonexistent/agent.so" in outcome.err


def test_disabled_loads_nothing(tmp_path):
    code = """
    import plumbline
    run = plumbline.init()
    with run.step(0):
        run.observe_routing("a", "anything", top_k=-1)
        run.scalar("loss", 1)
    assert isinstance(run, plumbline.NoRun)
    assert "agent" not in open("/proc/self/maps").read()
    """
    outcome = trainer.run(code, tmp_path, PLUMBLINE_DISABLE="1").ok()
    assert outcome.err == "" and not outcome.calls


def test_package_finds_the_library_without_help(tmp_path):
    code = """
    import os, plumbline
    from plumbline import _library
    assert plumbline.version() == "0.1.0"
    assert os.path.samefile(_library.load().path, os.environ["PLUMBLINE_BUILD_DIR"] + "/lib/libplumbline.so")
    """
    trainer.run(code, tmp_path).ok()


def test_struct_layouts_match_the_header(tmp_path):
    from plumbline import _library, _routing

    source = tmp_path / "sizes.c"
    source.write_text(
        '#include <stdio.h>\n#include "plumbline/plumbline.h"\n'
        'int main(void) { printf("%zu %zu %zu", sizeof(plumbline_routing_t), '
        "sizeof(plumbline_open_options_t), sizeof(DLTensor)); return 0; }\n"
    )
    root = __file__.rsplit("/tests/", 1)[0]
    subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{root}/agent/include",
         str(source), "-o", str(tmp_path / "sizes")], check=True)  # fmt: skip
    printed = subprocess.run([str(tmp_path / "sizes")], capture_output=True, text=True, check=True)
    routing_bytes, options_bytes, tensor_bytes = map(int, printed.stdout.split())
    assert _routing.STRUCT.size == routing_bytes
    assert ctypes.sizeof(_library.OpenOptions) == options_bytes
    assert tensor_bytes == 48
