"""The tensors that a caller may pass: of every library and layout, on the host and on devices."""

import trainer
from trainer import OPEN


def routing_lines(tmp_path, body):
    """Returns the tensors of the routing calls that `body` (within step 3) made."""
    body = "\n".join("        " + line for line in body.strip().splitlines())
    code = f"{OPEN}    with run.step(3):\n{body}\n    run.finish()\n"
    outcome = trainer.run_warm(code, tmp_path).ok()
    return ["scores=" + line.partition("scores=")[2] for line in outcome.only("routing ")]


def routing(tmp_path, body):
    (line,) = routing_lines(tmp_path, body)
    return line


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


# Stand-ins for a CUDA library and a torch with CUDA: host memory that is marked as on device 3, and streams
# that are numbers.
ON_DEVICE = """
import ctypes, sys, types, torch
from plumbline import _tensors
received = []
class Foreign:
    def __init__(self, tensor): self.tensor = tensor
    def __dlpack_device__(self): return (2, 3)
    def __dlpack__(self, stream=None):
        received.append(stream)
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
    """Returns device and stream of each routing call, and all other output."""
    body = "\n".join("        " + line for line in (ON_DEVICE + body).strip().splitlines())
    outcome = trainer.run_warm(f"{OPEN}    with run.step(3):\n{body}\n    run.finish()\n", tmp_path).ok()
    lines = outcome.only("routing ")
    return [" ".join(w for w in x.split() if w.startswith(("device=", "stream="))) for x in lines], outcome.out


def test_torch_tensors_go_on_torchs_current_stream(tmp_path):
    lines, _ = places(
        tmp_path,
        """
torch.cuda.current_stream = stream
run.observe_routing("a", torch.ones(3, 2).as_subclass(OnGpu), top_k=1,
                    topk_indices=Foreign(torch.ones(3, 1)))
assert received == [0x70], received""",
    )
    assert lines == ["device=2:3 stream=0x70"]


def test_cpu_tensors_query_no_stream(tmp_path):
    lines, out = places(
        tmp_path,
        """
def never(*_): raise AssertionError("asked")
torch.cuda.current_stream = torch.cuda.is_initialized = never
run.observe_routing("a", torch.ones(3, 2), top_k=1)
print("cuda" if torch.cuda._initialized else "none")""",
    )
    assert (lines, out) == ([""], "none\n")


def test_dlpack_gets_the_current_stream(tmp_path):
    lines, _ = places(
        tmp_path,
        """
run.observe_routing("a", Foreign(torch.ones(3, 2)), top_k=1)  # no current stream: the default one
torch.cuda.is_initialized, torch.cuda.current_stream = (lambda: True), stream
run.observe_routing("a", Foreign(torch.ones(3, 2)), top_k=1)
cupy = sys.modules["cupy"] = types.ModuleType("cupy")
cupy.ndarray = Foreign
cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=0x90))
run.observe_routing("a", Foreign(torch.ones(3, 2)), top_k=1)
assert received == [1, 0x70, 0x90], received""",
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
