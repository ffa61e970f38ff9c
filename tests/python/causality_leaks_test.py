"""check_causality finds each planted leak, and names its module."""

import os
import random
import re

import plumbline
import pytest
import torch
from causality_parts import (Attention, BatchNorm, Convolution, Depths, Experts, Fourier, ChunkedLinear, Model, Scaled, Sums, seeded,
                             tokens_of)  # fmt: skip
from causality_random import mixers

LONG = os.environ.get("PLUMB_LONG") == "1"
W = 16
# {name: (the mixer, its causes)}
LEAKS = {
    "off-by-one": (lambda w: Attention(w, leak="off-by-one"), {"next-token"}),
    "one-head": (lambda w: Attention(w, heads=4, leak="one-head"), {"later-tokens"}),
    "edge": (lambda w: Attention(w, leak="edge"), {"next-token"}),
    "convolution": (lambda w: Convolution(w, leak=True), {"next-token"}),
    "fourier": (lambda w: Fourier(w, leak=True), {"later-tokens"}),
    "mean": (lambda w: Sums(w, "leak"), {"later-tokens"}),
    "chunked": (lambda w: ChunkedLinear(w, leak=True), {"near-tokens"}),
    "expert-choice": (lambda w: Experts(w, "expert-choice"), {"later-tokens"}),
    "capacity": (lambda w: Experts(w, "capacity-score"), {"later-tokens"}),
    "bias-first": (lambda w: Experts(w, "bias-first"), {"later-tokens"}),
    "depths": (Depths, {"later-tokens"}),
    "batch-norm": (BatchNorm, {"later-tokens"}),
    "amax": (lambda w: Scaled(w, shared=True), {"shared-scale"}),
}


def blocks_of(modules):
    """Returns the numbers of the blocks whose mixer is named, and the modules that are no mixer."""
    text = [re.findall(r"blocks\.(\d+)\.mixer", one) for one in modules]
    return {int(n) for found in text for n in found}, [one for one, found in zip(modules, text) if not found]


@pytest.mark.parametrize("layout", ["bsh", "sbh", "flat"])
@pytest.mark.parametrize("name", LEAKS)
def test_each_leak_in_each_layout(name, layout):
    make, causes = LEAKS[name]
    model = seeded(1, lambda: Model([Attention(W), make(W), Attention(W)], layout=layout))
    verdict = plumbline.check_causality(model, tokens_of(2))
    assert (verdict.verdict, verdict.rule) == ("finding", "causality/future-influence"), verdict
    assert verdict.cause in causes and verdict.strength == "proved"
    assert verdict.level == ("warning" if name == "amax" else "error")
    assert blocks_of(verdict.modules) == ({1}, []), verdict


def test_a_mask_that_only_the_path_of_evaluation_drops():
    model = seeded(1, lambda: Model([Attention(W), Attention(W, leak="slow-path")]))
    assert plumbline.check_causality(model, tokens_of(2), mode="train").verdict == "passed"
    both = plumbline.check_causality(model, tokens_of(2), mode="both")
    assert both.verdict == "finding" and both.mode == "eval" and blocks_of(both.modules) == ({1}, [])


def test_two_leaks_are_both_named():
    model = seeded(1, lambda: Model([Attention(W, leak="off-by-one"), Convolution(W), Sums(W, "leak"), Attention(W)]))
    verdict = plumbline.check_causality(model, tokens_of(2))
    assert blocks_of(verdict.modules) == ({0, 2}, []), verdict


def test_a_leak_that_shows_at_one_cut_is_named_next_to_a_large_one():
    model = seeded(1, lambda: Model([Convolution(W, leak=True), Attention(W, leak="edge")]))
    assert blocks_of(plumbline.check_causality(model, tokens_of(2)).modules) == ({0, 1}, [])


def test_the_same_fault_in_each_layer_is_one_entry():
    model = seeded(1, lambda: Model([Attention(W, leak="off-by-one") for _ in range(6)]))
    verdict = plumbline.check_causality(model, tokens_of(2))
    assert len(verdict.modules) == 1 and "5 more of the same kind" in verdict.modules[0], verdict.modules


class Encoder(torch.nn.Module):
    """torch's own layers, each of which leaks; a patch of the last one alone would correct the outputs."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(29, W), torch.nn.Linear(W, 29)
        self.layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(W, 2, 32, batch_first=True) for _ in range(2))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_later_fault_does_not_hide_an_earlier_one(mode):
    verdict = plumbline.check_causality(seeded(1, Encoder), tokens_of(2), mode=mode)
    assert {re.match(r"layers\.\d", one)[0] for one in verdict.modules} == {"layers.0", "layers.1"}, verdict


def test_the_gradient_agrees():
    model = seeded(1, lambda: Model([Attention(W, leak="off-by-one")]))
    assert plumbline.check_causality(model, tokens_of(2)).gradient > 1e-3


def test_the_matrix_shows_where():
    model = seeded(1, lambda: Model([Attention(W, leak="edge")]))
    matrix = plumbline.check_causality(model, tokens_of(2)).matrix
    hit = {(r, c) for r, shares in enumerate(matrix["moved"]) for c, share in enumerate(shares) if share}
    assert hit == {(12, 11)} and matrix["positions"][12] == [12, 12]


@pytest.mark.parametrize("part", range(6 if LONG else 1))
def test_leaks_in_random_models(part):
    missed = []
    for seed in range(40 * part, 40 * part + (40 if LONG else 6)):
        dice = random.Random(seed + 5000)
        width, length = dice.choice([8, 16, 32]), dice.choice([8, 13, 16, 24, 33])
        parts = [(kind, make, None) for kind, make in mixers(dice, width)]
        chosen = [dice.choice([one for one in LEAKS if one != "amax"]) for _ in range(dice.choice([1, 1, 2]))]
        for name in chosen:
            parts.insert(dice.randint(0, len(parts)), (name, lambda name=name: LEAKS[name][0](width), name))
        model = seeded(seed, lambda: Model([make() for _, make, _ in parts], width=width, layout=dice.choice(["bsh", "sbh", "flat"])))
        verdict = plumbline.check_causality(model, tokens_of(seed, dice.choice([1, 2, 3, 4]), length))
        wanted = {at for at, (_, _, leak) in enumerate(parts) if leak}
        found, others = blocks_of(verdict.modules)
        if verdict.verdict != "finding" or found != wanted or others:
            missed.append((seed, [kind for kind, _, _ in parts], verdict.verdict, verdict.modules))
    assert not missed


def test_two_leaks_of_which_one_is_fixed():
    model = seeded(1, lambda: Model([Attention(W, leak="off-by-one"), Sums(W, "leak")]))
    model.blocks[0].mixer.leak = None
    assert blocks_of(plumbline.check_causality(model, tokens_of(2)).modules) == ({1}, [])


def test_nondeterministic_model_with_a_leak():
    class Noise(torch.nn.Module):
        def forward(self, x):
            draws = torch.tensor([int.from_bytes(os.urandom(2), "big") for _ in range(x.numel())], dtype=x.dtype)
            return x + 1e-3 * (draws.reshape(x.shape) / 65536 - 0.5)

    for leak, verdict, strength in ((None, "inconclusive", None), ("off-by-one", "finding", "statistical")):
        model = seeded(1, lambda: Model([Noise(), Attention(W, leak=leak)]))
        found = plumbline.check_causality(model, tokens_of(2, length=16))
        assert (found.verdict, found.strength) == (verdict, strength), found
        assert found.cause == ("nondeterministic" if leak is None else "later-tokens")
