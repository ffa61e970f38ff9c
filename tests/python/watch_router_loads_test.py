"""Between the calls that run.watch records whole, a router reports the chosen experts and the refusing experts, or nothing."""

import ctypes
import struct

import pytest
import torch
from torch import nn

import router_kinds
from plumbline import _routing
from plumbline._routers import watched as routers_watched
from router_kinds import E, H
from router_runs import EXPERTS_CHOOSE, Moved, Run, ids, made, truth


class Informative(Run):
    """Gets whole calls in some steps, and the reported loads in the others."""

    def __init__(self):
        super().__init__()
        self.next_due, self.sites, self.loads = 4, [], []
        self._observe_routing = lambda site, packed: self.loads.append((self._step, site, unpacked(packed)))

    def observe_routing(self, layer, **known):
        super().observe_routing(layer, **known)
        self._due[layer] = [self.next_due]

    def _declare_site(self, kind, layer, op):
        self.sites.append((layer, op))
        return len(self.sites)

    def _check(self, key, status):
        pass


_DTYPES = {(2, 32): torch.float32, (2, 64): torch.float64, (0, 64): torch.int64, (6, 8): torch.bool, (1, 8): torch.uint8}


def held(address):
    """A copy of a DLTensor; None at 0."""
    if not address:
        return None
    data, _, _, axes, code, bits, _, shape, strides, offset = struct.unpack("=QiiiBBHQQQ", ctypes.string_at(address, 48))
    sizes, steps = ((ctypes.c_int64 * axes).from_address(at) for at in (shape, strides))
    count = sum((n - 1) * step for n, step in zip(sizes, steps)) + 1
    flat = (ctypes.c_char * (count * bits // 8)).from_address(data + offset)
    return torch.frombuffer(flat, dtype=_DTYPES[code, bits]).as_strided(tuple(sizes), tuple(steps)).clone()


def unpacked(address):
    """Returns the fields of the plumbline_routing_t at `address`."""
    fields = _routing.STRUCT.unpack(ctypes.string_at(address, _routing.STRUCT.size))
    named = dict(zip(("bias", "chosen", "kept", "map", "probs", "sequence", "position"), map(held, fields[5:12])))
    return {"top_k": fields[1], "scores": held(fields[2]), "function": fields[4], **named}


def loads_reported(model, steps=4, batch=8, seed=0, between=lambda step: None):
    """Returns (run, {(step, layer): the true choices}). Whole calls are recorded in step 0 and from step 4 on."""
    run, own = Informative(), {}
    routers = routers_watched.Routers(run, model, lambda body, *a: body(*a), lambda: run.running)
    for run._step in range(steps):
        between(run._step)
        given = ids(batch, seed=100 * seed + run._step)
        routers.forward(True, (given,))
        model(given)
        own.update({(run._step, router.found.name): truth(model, router.found.name) for router in routers.routers})
        routers.step_ends()
        routers.pace._pace.every = 1  # in spite of its cost on a busy machine
    routers.remove()
    return run, own


def compared(run, own):
    """Checks that the reports equal the true choices, row by row. Returns the number of refused choices."""
    refused = 0
    for step, site, reported in run.loads:
        true = own[step, run.sites[site - 1][0]]
        stride = -(-len(true["indices"]) // 512)
        rows = slice(step % stride, None, stride)
        assert reported["top_k"] == true["indices"].shape[1] and len(reported["scores"]) <= 512
        assert torch.equal(reported["chosen"], true["indices"][rows])
        kept = true["kept"][rows]
        assert kept.all() if reported["kept"] is None else torch.equal(reported["kept"].bool(), kept.bool())
        refused += int((~kept.bool()).sum())
        if "logits" in true:
            assert torch.equal(reported["scores"], true["logits"][rows])
    return refused


DROPLESS = ["mixtral", "megatron", "megatron-bias", "noisy", "group-limited", "sinkhorn"]
DROPPING = ["switch", "deepspeed-rts", "deepspeed-top2", "megatron-probs", "megatron-position"]


@pytest.mark.parametrize("batch", [8, 40])
@pytest.mark.parametrize("kind", DROPLESS + DROPPING)
@pytest.mark.parametrize("seed", range(3))
def test_between_whole_calls_a_router_reports_which_experts_were_chosen_and_which_refused(kind, seed, batch):
    run, own = loads_reported(made(kind, seed), batch=batch, seed=seed)
    assert len(run.calls) == 2 and run.warnings == []
    assert [op for _, op in run.sites] == ["loads", "loads"]
    assert [step for step, *_ in run.loads] == [1, 1, 2, 2, 3, 3]
    assert (compared(run, own) > 0) == (kind in DROPPING)


# Scores and the experts' rows do not show which choices a loop of the trainer refused.
@pytest.mark.parametrize("kind", ["noisy-capacity", "score-drop", "score-drop-map-only", *EXPERTS_CHOOSE])
def test_if_kept_choices_are_not_cheap_to_see_only_whole_calls_report(kind):
    run, _ = loads_reported(made(MapOnly if kind == "score-drop-map-only" else kind))
    assert len(run.calls) == 2 and run.loads == []


class MapOnly(router_kinds.ScoreDropMap):
    """Returns the map of the requested choices, not of the kept ones; the experts get the kept ones."""

    def forward(self, x):
        flat = x.reshape(-1, H)
        scores, requested, kept = self.choose(flat)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token = kept[:, number].nonzero().squeeze(1)
            out = out.index_add(0, token, expert(flat[token]) * scores[token, number, None])
        return out.view(x.shape), requested.bool()


@pytest.mark.parametrize("seed", range(3))
def test_a_map_of_what_was_requested_is_not_taken_for_what_was_kept(seed):
    """If the whole call refuses no choice, both maps are equal."""
    def between(step):
        for block in model.blocks:
            block.capacity_factor = 4.0 if step == 0 else 0.8  # 4: all of them

    model = made(MapOnly, seed)
    run, own = loads_reported(model, seed=seed, between=between)
    assert own[0, "blocks.0"]["kept"].all() and not own[1, "blocks.0"]["kept"].all()
    assert run.loads == []


def test_a_bias_that_the_trainer_moves_is_reported_as_it_was_used():
    def between(step):
        with torch.no_grad():
            for block in model.blocks:
                block.router.expert_bias += 0.05 * torch.randn(E)

    def moved_afterwards(module, inputs, out):
        module.used = module.expert_bias.clone()
        with torch.no_grad():
            module.expert_bias += 1.0

    model = made("megatron-bias")
    for block in model.blocks:
        block.router.register_forward_hook(moved_afterwards)
    run, own = loads_reported(model, between=between)
    assert len(run.loads) == 6 and compared(run, own) == 0
    for step, site, reported in run.loads[-2:]:
        router = model.get_submodule(run.sites[site - 1][0])
        assert torch.equal(reported["bias"], router.used) and reported["function"] == _routing.SCORE_FUNCTIONS["sigmoid"]
        best = (reported["scores"].sigmoid() + reported["bias"]).topk(2).indices
        assert torch.equal(best, reported["chosen"])


def test_a_router_whose_bias_moves_inside_of_the_pass_reports_whole_calls_alone():
    def make():
        layer = router_kinds.MegatronLike(score_function="sigmoid")
        layer.router = Moved(score_function="sigmoid")
        return layer

    assert loads_reported(made(make))[0].loads == []


def test_a_router_that_holds_something_compiled_reports_whole_calls_alone():
    model = made("mixtral")
    expert = model.blocks[0].experts[2]
    expert._compiled_call_impl = expert._call_impl  # as torch 2's Module.compile() leaves one
    run, own = loads_reported(model)
    assert len(run.calls) == 2 and {run.sites[site - 1][0] for _, site, _ in run.loads} == {"blocks.1"}


class Counting(router_kinds.MixtralLike):
    """Full experts refuse, at a capacity that no attribute states. The experts' work is one call that cannot be hooked."""

    def forward(self, x):
        flat = x.reshape(-1, H)
        weights, chosen = self.gate(flat).softmax(-1).topk(2, dim=-1)
        mask = nn.functional.one_hot(chosen, E).sum(1)
        kept = mask * (mask.cumsum(0) <= len(flat) // 5)
        self.true = {"indices": chosen, "kept": kept.bool().gather(1, chosen)}
        return (flat * (weights * self.true["kept"]).sum(-1, keepdim=True)).view(x.shape)


def test_a_router_that_counts_places_and_stays_silent_of_them_reports_no_loads():
    run, own = loads_reported(made(Counting))
    assert not own[1, "blocks.0"]["kept"].all() and run.loads == []


class Warming(router_kinds.MixtralLike):
    """In some steps it chooses at random, and top-k is not called."""

    random = False

    def forward(self, x):
        if not self.random:
            return super().forward(x)
        flat = x.reshape(-1, H)
        logits = self.gate(flat)
        chosen = torch.randint(0, E, (len(flat), 2))
        self.true = {"indices": chosen, "kept": torch.ones_like(chosen, dtype=torch.bool)}
        return sum(expert(flat) * (chosen == n).any(1)[:, None] for n, expert in enumerate(self.experts)).view(x.shape), logits


def test_a_call_that_goes_another_way_is_not_reported():
    def between(step):
        for block in model.blocks:
            block.random = step == 2

    model = made(Warming)
    run, own = loads_reported(model, between=between)
    assert [step for step, *_ in run.loads] == [1, 1, 3, 3] and compared(run, own) == 0


class Logging(router_kinds.MixtralLike):
    """Computes another top-k for a log, before the one that routes."""

    def forward(self, x):
        with torch.no_grad():
            F = nn.functional
            self.log = torch.topk(F.softmax(self.gate(x.reshape(-1, H)) + torch.randn(E), dim=1), self.top_k, dim=-1)[1]
        return super().forward(x)


def test_a_top_k_for_a_log_is_not_taken_for_the_choice():
    run, own = loads_reported(made(Logging))
    reported = {step for step, *_ in run.loads}
    assert reported <= {1, 2, 3} and compared(run, own) == 0


@pytest.mark.parametrize("kind", ["mixtral", "switch", "megatron-bias", "group-limited"])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_rows_that_are_no_numbers_have_no_choice(kind, share):
    model, run_step = made(kind), [0]

    def poison(module, inputs, out):
        if module.training and run_step[0] >= 2:
            bad = torch.rand(out.shape[:-1], generator=torch.Generator().manual_seed(run_step[0])) < share
            return out.masked_fill(bad[..., None], float("nan"))
        return out

    model.norms[1].register_forward_hook(poison)
    run, own = loads_reported(model, between=lambda step: run_step.__setitem__(0, step))
    for step, site, reported in run.loads:
        bad = reported["scores"].isnan().any(-1)
        assert bool(bad.any()) == (step >= 2 and run.sites[site - 1][0].startswith("blocks.1"))
        assert (reported["chosen"][bad] == -1).all()
        true = own[step, run.sites[site - 1][0]]["indices"]
        rows = slice(step % -(-len(true) // 512), None, -(-len(true) // 512))
        assert torch.equal(reported["chosen"][~bad], true[rows][~bad])
    assert len(run.loads) == 6
