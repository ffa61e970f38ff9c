"""The distance by which a step moved the weights: by the library's call, by torch if tensors do not fit that call, and by a sum in fp64."""

import math

import pytest

torch = pytest.importorskip("torch")

import plumbline  # noqa: E402
from plumbline._watching import ratio  # noqa: E402


@pytest.fixture
def short(tmp_path):
    run = plumbline.init(run="ratio", record=str(tmp_path))
    yield run._library.short
    run.finish()


def parameters(seed, dtype=torch.float32):
    torch.manual_seed(seed)
    shapes = [(1, 1), (3, 85), (16, 16), (257, 1), (64, 129), (300, 300)]
    return [(str(shape), torch.nn.Parameter(torch.randn(shape).to(dtype))) for shape in shapes]


def by_hand(before, named):
    """Returns the ratio over the same elements, each weighted by the number of elements that it represents."""
    changed = was = 0.0
    for (_, parameter), old in zip(named, before):
        stride = max(1, parameter.numel() // ratio._ELEMENTS) | 1
        a = old.double().reshape(-1)[::stride][: ratio._ELEMENTS]
        b = parameter.detach().double().reshape(-1)[::stride][: ratio._ELEMENTS]
        share = parameter.numel() / a.numel()
        changed += share * float(((b - a) ** 2).sum())
        was += share * float((a**2).sum())
    return math.sqrt(changed / was)


def stepped(named, scale=1e-3):
    with torch.no_grad():
        for _, parameter in named:
            parameter.add_(scale * torch.randn(parameter.shape).to(parameter.dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("seed", range(3))
def test_the_ratio_is_that_of_a_sum_in_fp64(short, dtype, seed):
    named = parameters(seed, dtype)
    one = ratio.Ratio(short, named)
    for _ in range(3):
        before = [p.detach().clone() for _, p in named]
        one.before()
        stepped(named)
        assert one.after() == pytest.approx(by_hand(before, named), rel=1e-4)
    assert isinstance(one._in_hand, ratio._InHand) == (dtype is torch.float32)


def test_it_is_none_where_nothing_can_be_compared(short):
    named = parameters(0)
    one = ratio.Ratio(short, named)
    assert one.after() is None  # nothing was kept
    one.before()
    named[-1][1].data = torch.randn(300, 300)  # taken apart meanwhile
    assert one.after() is None
    one.before()
    named[-1][1].data = torch.randn(7, 300)
    assert one.after() is None
    one.before()
    stepped(named)
    assert one.after() is None  # one has another size permanently
    zeros = [("zeros", torch.nn.Parameter(torch.zeros(4, 4)))]
    one = ratio.Ratio(short, zeros)
    one.before()
    stepped(zeros)
    assert one.after() is None
    assert ratio.Ratio(short, []).before() is None


def test_a_nan_weight_gives_a_nan_ratio(short):
    named = parameters(1)
    one = ratio.Ratio(short, named)
    one.before()
    with torch.no_grad():
        named[2][1][0, 0] = math.nan
    assert math.isnan(one.after())
