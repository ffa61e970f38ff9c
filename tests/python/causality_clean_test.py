"""check_causality accuses no model without a leak."""

import os
import random

import plumbline
import pytest
import torch
from causality_parts import (Attention, Checkpointed, ChunkedLinear, Convolution, Experts, Fourier, Model, Scaled, StateSpace, Sums, Twice,
                             Unordered, seeded, tokens_of)  # fmt: skip
from causality_random import clean_model

LONG = os.environ.get("PLUMB_LONG") == "1"
W = 16
# {name: (the mixer, the kind of the pass)}
CLEAN = {
    "attention": (lambda: Attention(W), "exact"),
    "window": (lambda: Attention(W, window=4), "exact"),
    "masked-maximum": (lambda: Attention(W, masked_max=True), "rounding"),
    "fused": (lambda: Attention(W, fused=True), "exact"),
    "dropout": (lambda: Attention(W, rate=0.1), "exact"),
    "convolution": (lambda: Convolution(W), "exact"),
    "fourier": (lambda: Fourier(W), "rounding"),
    "sums": (lambda: Sums(W), "exact"),
    "total-minus-suffix": (lambda: Sums(W, "total-minus-suffix"), "rounding"),
    "state-space": (lambda: StateSpace(W), "exact"),
    "chunked": (lambda: ChunkedLinear(W), "exact"),
    "experts": (lambda: Experts(W), None),
    "experts-dropout": (lambda: Experts(W, rate=0.2), None),
    "scale-per-token": (lambda: Scaled(W), "exact"),
    "unordered": (lambda: Unordered(W), "rounding"),
    "twice": (lambda: Twice(Attention(W)), "exact"),
    "checkpointed": (lambda: Checkpointed(Attention(W)), "exact"),
}


@pytest.mark.parametrize("name", CLEAN)
def test_passes(name):
    make, kind = CLEAN[name]
    model = seeded(1, lambda: Model([Attention(W), make(), Attention(W)], rate=0.1 if "dropout" in name else 0.0))
    verdict = plumbline.check_causality(model, tokens_of(2), mode="both")
    assert verdict.verdict == "passed" and kind in (None, verdict.kind), verdict
    assert verdict.cut_share == 1 and verdict.trials >= 64 and verdict.excluded_rate < 0.07


def test_zero_initialised_matrices_are_filled_for_the_check_alone():
    for leak, wanted in ((None, "passed"), ("off-by-one", "finding")):
        model = seeded(1, lambda: Model([Attention(W, leak=leak)], zero=True))
        before = {n: t.clone() for n, t in model.state_dict().items()}
        verdict = plumbline.check_causality(model, tokens_of(2))
        assert verdict.verdict == wanted and "head.weight" in verdict.filled
        assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items()) and not model.head.weight.any()


def test_intended_dependence_is_allowed():
    model = seeded(1, lambda: Model([Attention(W, prefix=8), Attention(W, prefix=8)]))
    assert plumbline.check_causality(model, tokens_of(2)).verdict == "finding"
    spans = torch.zeros(24, 24, dtype=torch.bool)
    spans[:8, :8] = True
    for allowed in (8, [(0, 7)], spans):
        assert plumbline.check_causality(model, tokens_of(2), allowed=allowed).verdict == "passed"
    assert plumbline.check_causality(model, tokens_of(2), allowed=7).verdict == "finding"
    assert plumbline.check_causality(seeded(1, lambda: Model([Attention(W, leak="off-by-one")])), tokens_of(2), lookahead=1).verdict == "passed"
    assert plumbline.check_causality(seeded(1, lambda: Model([Attention(W, leak="off-by-one")] * 2)), tokens_of(2), lookahead=1).verdict == "finding"


def test_nothing_that_moves_is_no_pass():
    class Constant(torch.nn.Module):
        def forward(self, tokens):
            return torch.ones(*tokens.shape, 4)

    verdict = plumbline.check_causality(Constant(), tokens_of(2))
    assert (verdict.verdict, verdict.cause) == ("inconclusive", "nothing-moves")

    class NotANumber(Model):
        def forward(self, tokens):
            return super().forward(tokens) * float("nan")

    assert plumbline.check_causality(NotANumber([]), tokens_of(2)).verdict == "inconclusive"


def test_outputs_that_cannot_be_compared():
    class Pooled(Model):
        def forward(self, tokens):
            return super().forward(tokens).mean(1)

    class OfTheData(Model):
        def forward(self, tokens):
            return super().forward(tokens)[tokens % 2 == 0]

    for kind in (Pooled, OfTheData):
        verdict = plumbline.check_causality(seeded(1, lambda: kind([Attention(W)])), tokens_of(2))
        assert (verdict.verdict, verdict.cause) == ("inconclusive", "shape"), verdict


def test_time_limit_is_no_pass():
    model = seeded(1, lambda: Model([Attention(W)]))
    verdict = plumbline.check_causality(model, tokens_of(2), budget_s=0.0)
    assert (verdict.verdict, verdict.cause) == ("inconclusive", "budget")


@pytest.mark.parametrize("part", range(25 if LONG else 1))
def test_random_models(part):
    """No model is accused, and at most 2 % are inconclusive."""
    each = 40 if LONG else 25
    accused, open_ends = [], []
    for seed in range(each * part, each * part + each):
        dice = random.Random(seed)
        names, model, batch, length, vocabulary, mode = seeded(seed, lambda: clean_model(dice))
        verdict = plumbline.check_causality(model, tokens_of(seed, batch, length, vocabulary), mode=mode)
        if verdict.verdict == "finding":
            accused.append((seed, names, str(verdict)))
        elif verdict.verdict == "inconclusive":
            open_ends.append((seed, names, verdict.cause))
    assert not accused
    assert len(open_ends) <= 0.02 * each + 1, open_ends
