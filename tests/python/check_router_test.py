"""check_router on real PyTorch and numpy routers, including that of the example."""

import math
import os
import pathlib
import random
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import plumbline  # noqa: E402

EXAMPLE = pathlib.Path(__file__).parent.parent.parent / "examples/moe_pytorch"
sys.path.insert(0, str(EXAMPLE))
import routers  # noqa: E402

SEQUENCES, LENGTH, EXPERTS = 4, 24, 8
TOKENS = SEQUENCES * LENGTH
ROW = {
    "dropless": ("clean", "pass", None),
    "fifo": ("batch-dependent", "finding", "warning"),
    "score-drop": ("future-leak", "finding", "error"),
    "expert-choice": ("future-leak", "finding", "error"),
}


def batch(seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(TOKENS, EXPERTS, generator=generator).to(dtype)


WHERE = {"sequence_id": torch.arange(TOKENS) // LENGTH, "position": torch.arange(TOKENS) % LENGTH}


def example(policy, form):
    def run(logits):
        routing = routers.route(policy, logits, 2, 1.0)
        if form == "map" or routing.indices is None:
            return routing.assigned
        return routing.weights if form == "weights" else (routing.indices, routing.keep)

    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("form", ["map", "pair", "weights"])
@pytest.mark.parametrize("policy", routers.POLICIES)
def test_every_router_of_the_example(policy, form, dtype):
    logits = batch(dtype=dtype).requires_grad_()
    verdict = plumbline.check_router(example(policy, form), logits, **WHERE)
    assert (verdict.row, verdict.verdict, verdict.level) == ROW[policy], verdict
    assert verdict.strength == ("proved" if verdict.level else None)
    assert (verdict.future_share > 0) == (verdict.level == "error")
    assert (verdict.earlier_share > 0) == (policy != "dropless")
    assert (verdict.later_share > 0) == (verdict.level == "error")
    assert verdict.other_rank_share is None
    assert (verdict.witness is not None) == (verdict.verdict == "finding")
    if verdict.level == "error":
        witness = verdict.witness
        assert witness["sequence"] == witness["changed_sequence"]
        assert witness["position"] < witness["changed_from"]
        assert witness["row"] == witness["sequence"] * LENGTH + witness["position"]
        assert witness["lost_expert"] is not None or witness["gained_expert"] is not None
        assert witness["text"] in repr(verdict)


def test_the_gate_of_the_example_model():
    sys.path.insert(0, str(EXAMPLE))
    from model import MixtureOfExperts

    for policy in routers.POLICIES:
        layer = MixtureOfExperts("layers.0", 16, 32, EXPERTS, 2, policy, 1.0)
        hidden = torch.randn(TOKENS, 16, generator=torch.Generator().manual_seed(1))

        def run(logits):
            routing = routers.route(layer.policy, logits, layer.top_k, layer.capacity_factor)
            return routing.assigned

        verdict = plumbline.check_router(run, layer.gate(hidden), **WHERE)
        assert verdict.row == ROW[policy][0], verdict


def test_numpy_routers_get_numpy():
    seen = []

    def top2(logits):
        seen.append((type(logits), logits.dtype, logits.shape))
        return numpy.argsort(-logits, axis=1)[:, :2]

    for dtype in (numpy.float32, numpy.float64, numpy.float16):
        logits = numpy.random.RandomState(3).randn(TOKENS, EXPERTS).astype(dtype)
        where = {name: value.numpy() for name, value in WHERE.items()}
        assert plumbline.check_router(top2, logits, **where).verdict == "pass"
        assert set(seen) == {(numpy.ndarray, numpy.dtype(dtype), (TOKENS, EXPERTS))}
        seen.clear()


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: x.topk(2).indices,
        lambda x: x.topk(2).indices.int(),
        lambda x: (x.topk(2).indices, None),
        lambda x: (x.topk(2).indices, torch.ones(TOKENS, 2, dtype=torch.bool)),
        lambda x: x.topk(EXPERTS).indices,  # [T,E] integers that are permutations: indices
        lambda x: (x > 0),
        lambda x: (x > 0).long(),
        lambda x: torch.where(x > 0, x, torch.zeros(())),
        lambda x: x.topk(2).indices.masked_fill(x.topk(2).values < 0, -1),
        lambda x: x.topk(2).indices.tolist(),
        lambda x: x.topk(2).indices.numpy(),
        lambda x: x.topk(2).indices.t().clone().t(),  # strided
    ],
)
def test_forms_of_an_answer(answer):
    verdict = plumbline.check_router(answer, batch(), **WHERE)
    assert verdict.row == "clean", verdict


def test_what_is_kept_counts_not_only_what_is_chosen():
    """Indices alone are dropless; the mask shows the drops."""

    def fifo(logits):
        routing = routers.route("score-drop", logits, 2, 1.0)
        return routing.indices, routing.keep

    assert plumbline.check_router(fifo, batch(), **WHERE).row == "future-leak"
    assert plumbline.check_router(lambda x: fifo(x)[0], batch(), **WHERE).row == "clean"


def test_seeds_are_set_and_put_back():
    def noisy(logits):
        noise = torch.rand_like(logits) + float(numpy.random.rand()) + random.random()
        return (logits + noise).topk(2).indices

    torch.manual_seed(5)
    random.seed(5)
    numpy.random.seed(5)
    before = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    assert plumbline.check_router(noisy, batch(), **WHERE).row == "clean"
    after = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]


def test_a_router_with_a_generator_of_its_own_is_not_accused():
    generator = torch.Generator().manual_seed(0)

    def race(logits):
        return (logits + torch.rand(logits.shape, generator=generator)).topk(2).indices

    verdict = plumbline.check_router(race, batch(), **WHERE)
    assert (verdict.row, verdict.verdict, verdict.level) == ("nondeterministic", "inconclusive", None)
    assert verdict.witness is None
    assert "is not repeatable" in repr(verdict)


def test_padding_and_ranks():
    padding = torch.zeros(TOKENS, dtype=torch.bool)
    padding[LENGTH - 4 : LENGTH] = True
    rank = (torch.arange(TOKENS) >= 2 * LENGTH).long()
    touched = set()

    def watch(logits):
        touched.update((logits != batch()).any(dim=1).nonzero().flatten().tolist())
        return routers.route("fifo", logits, 2, 1.0).assigned

    verdict = plumbline.check_router(watch, batch(), padding_mask=padding, rank=rank, **WHERE)
    assert not touched & set(padding.nonzero().flatten().tolist())
    assert touched
    assert verdict.other_rank_share > 0 and verdict.row == "batch-dependent"


def test_the_callers_tensor_is_left_alone():
    logits = batch()
    copy = logits.clone()

    def destructive(x):
        chosen = x.topk(2).indices
        x.zero_()
        return chosen

    assert plumbline.check_router(destructive, logits, **WHERE).row == "clean"
    assert torch.equal(logits, copy)


def test_exceptions_of_the_router_come_with_their_context():
    calls = []

    def breaks(logits):
        calls.append(1)
        if len(calls) == 4:
            raise ZeroDivisionError("no load")
        return logits.topk(2).indices

    with pytest.raises(plumbline.RouterCheckError) as raised:
        plumbline.check_router(breaks, batch(), **WHERE)
    assert str(raised.value).startswith("call 4 (the tokens from position 1 of sequence 0 replaced by")
    assert str(raised.value).endswith("ZeroDivisionError: no load")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert len(calls) == 4  # nothing is tried after this

    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plumbline.check_router(interrupted, batch(), **WHERE)


@pytest.mark.parametrize(
    "answer, text",
    [
        (lambda x: x.topk(2).indices[:5], "indices: expected integers [T, k] with T = 96"),
        (lambda x: x.topk(2).indices + 7, "expected 0 to 7"),
        (lambda x: x.topk(2).values, "expected indices [T, k], (indices, keep_mask), or a map [96, 8]"),
        (lambda x: (x.topk(2).indices, x > 0), "keep_mask: expected the shape of the indices, [96, 2]"),
        (lambda x: None, "not NoneType"),
    ],
)
def test_answers_that_are_no_routing(answer, text):
    with pytest.raises(plumbline.RouterCheckError) as raised:
        plumbline.check_router(answer, batch(), **WHERE)
    assert text in str(raised.value) and "call 1 (the original batch)" in str(raised.value)


def test_inputs_that_are_no_batch():
    route = lambda x: x.topk(2).indices  # noqa: E731
    poisoned = batch()
    poisoned[3, 2] = math.nan
    with pytest.raises(ValueError, match="row 3, expert 2 is NaN"):
        plumbline.check_router(route, poisoned)
    with pytest.raises(ValueError, match=r"expected shape \[T, E\], found \[4, 24, 8\]"):
        plumbline.check_router(route, batch().reshape(4, 24, 8))
    with pytest.raises(TypeError, match="logits: expected a torch tensor or a numpy array"):
        plumbline.check_router(route, [[1.0, 2.0]])
    with pytest.raises(ValueError, match="position: expected one value a row, 96, found 95"):
        plumbline.check_router(route, batch(), position=torch.arange(95))
    with pytest.raises(ValueError, match="a second time"):
        plumbline.check_router(route, batch(), position=torch.zeros(TOKENS, dtype=torch.long))
    with pytest.raises(ValueError, match="logits"):
        plumbline.check_router(route, torch.ones(4, 2, dtype=torch.long))
    masked = batch()
    masked[:, 0] = -math.inf
    assert plumbline.check_router(route, masked, **WHERE).row == "clean"


def test_one_token_a_sequence_stays_silent():
    verdict = plumbline.check_router(
        lambda x: x.topk(2).indices, batch(), sequence_id=torch.arange(TOKENS)
    )
    assert (verdict.verdict, verdict.row) == ("inconclusive", "not-tried")


def test_max_calls_bounds_the_work():
    calls = []

    def route(logits):
        calls.append(1)
        return logits.topk(2).indices

    verdict = plumbline.check_router(route, batch(), max_calls=40, **WHERE)
    assert verdict.calls == len(calls) <= 40
    assert any("ended early" in a for a in verdict.assumptions)


def test_switched_off():
    code = (
        "import plumbline, torch\n"
        "v = plumbline.check_router(lambda x: 1/0, torch.ones(4, 2))\n"
        "print(v.verdict, v.row)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PLUMBLINE_DISABLE": "1"},
        capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    assert out.stdout.split() == ["inconclusive", "disabled"]
