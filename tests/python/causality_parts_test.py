"""The parts of check_causality: state, generators, axes, cuts, the rank test, forms of the verdict."""

import itertools
import json
import os
import random
import subprocess
import sys

import plumbline
import pytest
import torch
from causality_parts import Attention, BatchNorm, Experts, Model, seeded, tokens_of
from plumbline._causality.axes import Axes, axes_of, put_rows, rows
from plumbline._causality.cuts import May, Suffixes, plan
from plumbline._causality.dice import Draws, WithoutDropout
from plumbline._causality.repeats import rank_probability
from plumbline._causality.search import excluded
from plumbline._causality.state import State
from torch import nn

W = 16


# ---- the model is as before ---------------------------------------------------------------------


class Counting(nn.Module):
    """Keeps counters, lists, a plain tensor, a generator and a parameter that its forward pass changes."""

    def __init__(self):
        super().__init__()
        self.count, self.seen, self.table, self.plain = 0, [], {"a": [1]}, torch.zeros(3)
        self.generator = torch.Generator().manual_seed(3)
        self.scale = nn.Parameter(torch.ones(W))
        self.alias = self.plain

    def forward(self, x):
        self.count += 1
        self.seen.append(self.count)
        self.table["a"].append(2)
        self.table["b"] = 1
        self.plain += 1
        self.scale.data.mul_(1.5)
        self.added = 1
        torch.rand(1, generator=self.generator)
        return x * self.scale + self.plain[0] + len(self.seen)


@pytest.mark.parametrize("mode", ["train", "eval", "both"])
def test_the_model_is_as_before(mode):
    model = seeded(1, lambda: Model([Attention(W, leak="off-by-one"), Counting(), BatchNorm(W)], rate=0.1))
    model.blocks[0].eval()
    model.head.weight.grad = torch.ones_like(model.head.weight)
    calls = []
    model.head.register_forward_hook(lambda *_: calls.append(1))
    part, before = model.blocks[1].mixer, {n: t.clone() for n, t in model.state_dict().items()}
    modes, hooks, table, plain = [m.training for m in model.modules()], len(model.head._forward_hooks), part.table["a"], part.plain
    dice, python, state = torch.get_rng_state(), random.getstate(), part.generator.get_state()
    plumbline.check_causality(model, tokens_of(2), mode=mode)
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    assert (part.count, part.seen, part.table, part.plain.tolist()) == (0, [], {"a": [1]}, [0, 0, 0]) and not hasattr(part, "added")
    assert part.table["a"] is table and part.plain is plain and part.alias is plain
    assert torch.equal(dice, torch.get_rng_state()) and python == random.getstate() and torch.equal(state, part.generator.get_state())
    assert [m.training for m in model.modules()] == modes and len(model.head._forward_hooks) == hooks and calls
    assert torch.equal(model.head.weight.grad, torch.ones_like(model.head.weight))


def test_the_model_is_as_before_if_it_fails():
    class Fails(Model):
        def forward(self, tokens):
            self.norm.weight.data.zero_()
            raise ValueError("the model is broken")

    model = seeded(1, lambda: Fails([]))
    with pytest.raises(plumbline.CausalityError, match="failed on the tokens as given: ValueError: the model is broken"):
        plumbline.check_causality(model, tokens_of(2))
    assert bool(model.norm.weight.all()) and model.training


def test_a_state_that_each_pass_changes_is_no_leak():
    model = seeded(1, lambda: Model([Counting(), Attention(W)]))
    assert plumbline.check_causality(model, tokens_of(2)).verdict == "passed"


def test_state_of_replaced_buffers():
    module = nn.BatchNorm1d(3)
    state, kept = State(module.modules()), module.running_mean
    module.running_mean = torch.ones(3)
    module.running_var.add_(1)
    state.restore()
    assert module.running_mean is kept and not bool(module.running_mean.any()) and module.running_var.tolist() == [1, 1, 1]


# ---- random draws -------------------------------------------------------------------------------


def test_draws_are_pinned_by_their_number():
    def draw():
        return torch.rand(3), torch.randn(2), torch.bernoulli(torch.full((4,), 0.5))

    first, second = Draws(True), Draws(True)
    with first:
        one = draw()
    torch.rand(5)
    with second:
        two = draw()
    assert first.shapes == [(3,), (2,), (4,)] == second.shapes and all(torch.equal(a, b) for a, b in zip(one, two))


def test_dropout_at_zero():
    x, layer = torch.ones(4, 5, 8), nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
    with WithoutDropout():
        assert torch.equal(nn.Dropout(0.9)(x), x) and torch.equal(nn.functional.dropout(x, 0.9, True), x)
        assert torch.equal(layer(x), layer(x))
    assert not torch.equal(layer(x), layer(x))


# ---- axes, cuts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape, longer, wider, wanted", [
    ((3, 8, 5), (3, 7, 5), (4, 8, 5), Axes(1, 0)),
    ((8, 3, 5), (7, 3, 5), (8, 4, 5), Axes(0, 1)),
    ((24, 5), (21, 5), (32, 5), Axes(0, 0, flat=True)),
    ((3, 5, 8), (3, 5, 7), (4, 5, 8), Axes(2, 0)),
    ((3, 7, 5), (3, 6, 5), (4, 7, 5), Axes(1, 0, shift=-1)),
    ((3, 8, 8), (3, 7, 7), (4, 8, 8), None),
    ((3, 5), (3, 5), (4, 5), None),
    ((3, 8, 5), None, None, Axes(1, 0)),
    ((8, 4), (7, 4), (8, 4), Axes(0)),
])  # fmt: skip
def test_axes(shape, longer, wider, wanted):
    assert axes_of(shape, longer, wider, (3, 8, 4, 7)) == wanted


@pytest.mark.parametrize("axes, shape", [(Axes(1, 0), (3, 4, 2)), (Axes(0, 1), (4, 3, 2)), (Axes(0, 0, True, True), (12, 2)), (Axes(0, 0, True, False), (12, 2)),
                                         (Axes(2, 0), (3, 2, 4))])  # fmt: skip
def test_rows_are_put_where_they_were_read(axes, shape):
    one, other = torch.arange(24.0).reshape(shape), -torch.arange(24.0).reshape(shape) - 1
    where = torch.rand(3, 4, generator=torch.Generator().manual_seed(1)) < 0.5
    mixed = rows(put_rows(one, other, axes, where, 3, 4), axes, 3, 4)
    wanted = torch.where(where.reshape(3, 4, 1), rows(other, axes, 3, 4).reshape(3, 4, -1), rows(one, axes, 3, 4).reshape(3, 4, -1))
    assert torch.equal(mixed.reshape(3, 4, -1), wanted)


@pytest.mark.parametrize("length", [2, 3, 17, 255, 256, 257, 1000])
def test_cuts(length):
    cuts, forwards = plan(3, length, 64, 0)
    trials = [one for trials in forwards for one in trials]
    assert len(trials) >= 64 and {one.cut for one in trials} == set(cuts) and min(cuts) == 1 and max(cuts) == length - 1
    assert all(len({one.sequence for one in trials}) == len(trials) for trials in forwards)
    if length <= 256:
        assert cuts == list(range(1, length))
    else:
        assert {63, 64, 65, 111, 113, 128, 129, length - 1} <= set(cuts) and len(cuts) < 130


def test_suffixes_change_only_what_follows():
    tokens, fixed = tokens_of(2), torch.zeros(3, 24, dtype=torch.bool)
    fixed[:, 20] = True
    suffixes = Suffixes(tokens, 29, [0], fixed)
    for trials in plan(3, 24, 64, 0)[1]:
        new = suffixes.replaced(trials)
        for one in trials:
            assert torch.equal(new[one.sequence, : one.cut], tokens[one.sequence, : one.cut]) and bool((new[:, 20] == tokens[:, 20]).all())
            assert one.cut == 20 or not torch.equal(new[one.sequence], tokens[one.sequence])
        assert int(new.min()) >= 0 and int(new.max()) < 29


def test_rows_that_may_follow():
    may = May(6, allowed=3, lookahead=1)
    changed = torch.zeros(1, 6, dtype=torch.bool)
    changed[0, 2] = True
    assert may.reached(changed).tolist() == [[True] * 6]
    changed = torch.zeros(1, 6, dtype=torch.bool)
    changed[0, 4] = True
    assert may.reached(changed).tolist() == [[False, False, False, True, True, True]]


# ---- statistics ---------------------------------------------------------------------------------


def test_rank_probability_equals_a_count_of_all_arrangements():
    dice = random.Random(3)
    for n, m in ((3, 3), (4, 5), (5, 3)):
        values = [dice.random() for _ in range(n + m)]
        wins = lambda chosen: sum(values[j] > values[i] for j in chosen for i in range(n + m) if i not in chosen)
        every = [wins(set(c)) for c in itertools.combinations(range(n + m), m)]
        chosen = set(dice.sample(range(n + m), m))
        wanted = sum(w >= wins(chosen) for w in every) / len(every)
        assert rank_probability([values[i] for i in range(n + m) if i not in chosen], [values[j] for j in chosen]) == pytest.approx(wanted)


def test_rate_that_a_pass_excludes():
    assert (1 - excluded(64)) ** 64 == pytest.approx(0.01) and excluded(0) == 1


# ---- forms, arguments ---------------------------------------------------------------------------


def test_forms_of_the_verdict():
    model = seeded(1, lambda: Model([Experts(W), Attention(W, leak="off-by-one")]))
    verdict = plumbline.check_causality(model, tokens_of(2))
    text, parsed, page = str(verdict), json.loads(verdict.to_json()), verdict.to_html()
    assert text.startswith("finding (error, proved): causality/future-influence, cause next-token\n")
    assert parsed["rule"] == "causality/future-influence" and parsed["modules"] == verdict.modules and parsed["matrix"]["moved"]
    assert "blocks.1.mixer" in text and "blocks.1.mixer" in page and "<table>" in page and "<script" not in page
    good = plumbline.check_causality(seeded(1, lambda: Model([Attention(W)])), tokens_of(2))
    assert str(good).startswith("passed (exact): no output row moved") and json.loads(good.to_json())["findings"] == [] and "<table>" not in good.to_html()


@pytest.mark.parametrize("tokens, stated", [
    (torch.rand(2, 8), "expected integers of shape [B,S], found float32 of shape [2, 8]"),
    (torch.zeros(2, 1, dtype=torch.long), "expected sequences of at least 2 tokens"),
    ({"words": torch.zeros(2, 8, dtype=torch.long)}, "found a dictionary with words; expected input_ids"),
])  # fmt: skip
def test_tokens_that_do_not_fit(tokens, stated):
    with pytest.raises(plumbline.CausalityError) as error:
        plumbline.check_causality(Model([]), tokens)
    assert stated in str(error.value)


def test_functions_of_a_model():
    model = seeded(1, lambda: Model([Attention(W, leak="off-by-one")]))
    for call in (lambda tokens: model(tokens), lambda tokens: {"other": 1, "logits": model(tokens)}, model.forward):
        verdict = plumbline.check_causality(call, tokens_of(2))
        assert verdict.verdict == "finding" and "blocks.0.mixer" in verdict.modules[0]


def test_import_needs_no_torch():
    code = "import sys, plumbline; print('torch' in sys.modules); plumbline.check_causality(None, None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout == "False\n" and "CausalityError: torch is not imported" in done.stderr


def test_shares_grow_linearly_with_layers():
    """Forward passes do not depend on the number of layers, for a pass and for one fault."""
    for leak in (None, "off-by-one"):
        counts = {layers: plumbline.check_causality(
            seeded(1, lambda n=layers: Model([Attention(W, leak=leak if i == 1 else None) for i in range(n)])), tokens_of(2)).forwards
            for layers in (2, 8)}  # fmt: skip
        assert counts[2] == counts[8]
