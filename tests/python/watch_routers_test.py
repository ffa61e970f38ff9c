"""run.watch hooks routers: observations are correct, only leaks are named, and nothing changes."""

import copy
import io
import os
import pathlib

import pytest
import torch
from torch import nn

import router_kinds
import trainer
from plumbline._routers import watched as routers_watched
from router_kinds import E, H
from router_runs import EXPERTS_CHOOSE, TOKENS_CHOOSE, Moved, heard, ids, made, truth, watched

NONE = ["gated-unit", "sparse-attention", "classifier"]
NOISE = {"deepspeed-rts": "token-selection"}


# ---- observations are correct ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", TOKENS_CHOOSE)
@pytest.mark.parametrize("seed", range(3))
def test_tokens_choose(kind, seed):
    model = made(kind, seed)
    calls, stated, _ = heard(model, ids(seed=seed))
    assert len(calls) == 2 and stated == []
    for layer, known in calls:
        true = truth(model, layer)
        assert torch.equal(known["topk_indices"], true["indices"])
        assert torch.equal(known["keep_mask"], true["kept"])
        if "logits" in true:
            assert torch.equal(known["router_logits"], true["logits"])
        assert known.get("randomness") == NOISE.get(kind)
        if kind != "sinkhorn":
            assert torch.equal(best(known), known["topk_indices"].sort(-1).values)


def best(known):
    """Returns the top-k of the recorded scores, computed independently."""
    scores = known["router_logits"]
    scores = {"sigmoid": torch.sigmoid}.get(known["score_function"], lambda x: x)(scores) + known.get("expert_bias", 0)
    return scores.topk(known["top_k"]).indices.sort(-1).values


@pytest.mark.parametrize("kind", EXPERTS_CHOOSE)
def test_experts_choose(kind):
    model = made(kind)
    calls, stated, _ = heard(model, ids())
    assert len(calls) == 2 and stated == []
    for layer, known in calls:
        assert torch.equal(known["routing_map"], truth(model, layer)["map"])
        assert known["policy"] == "expert-choice"
        pools = 8 if kind == "expert-choice-sequence" else 1
        assert known["capacity"] == 8 * 32 // E // pools and int(known["pool_id"].max()) + 1 == pools


@pytest.mark.parametrize("kind, capacity, source, policy", [
    ("mixtral", None, None, None), ("switch", 5, "declared", "fifo-capacity"), ("deepspeed-rts", 32, "declared", "random-capacity"),
    ("deepspeed-top2", 64, "declared", None), ("megatron-probs", 52, "declared", "score-capacity"),
    ("noisy-capacity", 25, "inferred", None), ("score-drop", 51, "inferred", None), ("score-drop-map", 51, "declared", "score-capacity"),
])  # fmt: skip
def test_capacity_is_a_number_of_the_routers_or_counted(kind, capacity, source, policy):
    for _, known in heard(made(kind), ids())[0]:
        assert (known.get("capacity"), known.get("capacity_source"), known.get("policy")) == (capacity, source, policy)


@pytest.mark.parametrize("router, captured", [(router_kinds.TopKRouter, "before"), (Moved, "after")])
def test_a_bias_states_when_it_was_captured(router, captured):
    def make():
        layer = router_kinds.MegatronLike(score_function="sigmoid")
        layer.router = router(score_function="sigmoid")
        return layer

    model = made(make)
    calls, stated, _ = heard(model, ids())
    assert len(calls) == 2 and stated == []
    for layer, known in calls:
        assert known["bias_captured"] == captured
        assert torch.equal(known["expert_bias"], model.get_submodule(layer).expert_bias)


def test_a_number_that_does_not_fit_is_not_taken_for_the_capacity():
    model = made("switch")
    run, routers = watched(model)
    for block in model.blocks:
        block.router.expert_capacity = 4  # 5 was read
    routers.forward(True, (ids(),))
    model(ids())
    routers.step_ends()
    routers.remove()
    assert len(run.calls) == 2
    for _, known in run.calls:
        assert "capacity" not in known and "pool_id" not in known and not known["keep_mask"].all()


@pytest.mark.parametrize("kind, order", [("mixtral", "batch-major"), ("megatron", "seq-major")])
def test_rows_know_their_sequences(kind, order):
    for _, known in heard(made(kind), ids(4, 16))[0]:
        assert known["flatten"] == order
        row = torch.arange(64)
        sequence, position = (row // 16, row % 16) if order == "batch-major" else (row % 4, row // 4)
        assert torch.equal(known["sequence_id"], sequence) and torch.equal(known["position"], position)


def test_ids_may_come_by_keyword():
    model = made("mixtral")
    run, routers = watched(model)
    routers.forward(True)
    model(tokens=ids(4, 16))
    routers.step_ends()
    routers.remove()
    assert all("sequence_id" in known for _, known in run.calls)


def test_as_many_sequences_as_positions_may_be_either_order():
    assert all("sequence_id" not in known for _, known in heard(made("megatron"), ids(16, 16))[0])


# ---- modules that are not observed ----------------------------------------------------------------


@pytest.mark.parametrize("kind", NONE)
def test_what_is_no_router_is_not_taken_for_one(kind):
    assert heard(made(kind), ids()) == ([], [], "")


class Unknown(router_kinds.MixtralLike):
    """Has an attribute for a capacity. The experts' work is one call that cannot be hooked."""

    def __init__(self):
        super().__init__()
        self.capacity_factor = 1.0

    def forward(self, x):
        flat = x.reshape(-1, H)
        weights, chosen = self.gate(flat).softmax(-1).topk(2, dim=-1)
        return (flat * weights.sum(-1, keepdim=True)).view(x.shape)


def test_where_it_is_not_known_what_was_kept_it_is_silent():
    calls, stated, _ = heard(made(Unknown), ids())
    assert calls == [] and len(stated) == 2
    assert "the kept choices could not be observed: not observed" in stated[0]


def test_a_router_of_which_nothing_is_known_is_heard_ever_more_rarely():
    model = made(Unknown)
    run, routers = watched(model)
    tries = []
    for run._step in range(40):
        tries += [run._step] if routers.routers[0].wants(model.blocks[0]) or not routers.training else []
        routers.forward(True)
        model(ids())
    routers.remove()
    assert tries == [0, 2, 6, 14, 30]


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_experts, self.top_k, self.gate = E, 2, nn.Linear(H, E)

    def forward(self, x):
        return torch.topk(torch.softmax(self.gate(x), -1), self.top_k)[1]


class Ranked(router_kinds.MixtralLike):
    """Tokens choose, by a function that cannot be hooked. The best tokens of each expert are computed for a log."""

    def forward(self, x):
        flat = x.reshape(-1, H)
        scores = self.gate(flat).softmax(-1)
        self.liked = scores.topk(5, dim=0).indices
        return sum(expert(flat) * scores[:, n, None] for n, expert in enumerate(self.experts)).view(x.shape)


def test_a_top_k_over_tokens_that_no_expert_was_given_is_no_expert_choice():
    calls, stated, _ = heard(made(Ranked), ids())
    assert calls == [] and "whether the experts got these tokens" in stated[0]


def test_the_eval_mode_and_steps_that_are_not_due_are_not_heard():
    model = made("mixtral")
    run, routers = watched(model)
    routers.forward(False)
    model(ids())
    model.eval()
    routers.forward(True)
    model(ids())
    model.train()
    run.running = True  # a forward pass inside of the backward pass
    model(ids())
    run.running = False
    model(ids())
    routers.step_ends()
    assert len(run.calls) == 2
    for router in routers.routers:
        router._word = [7]
    model(ids())
    assert len(run.calls) == 2
    run._step = 7
    model(ids())
    assert len(run.calls) == 4
    routers.remove()


def test_a_router_that_cannot_be_hooked_is_named():
    model = made("mixtral")
    model.blocks[0].forward = model.blocks[0].forward
    _, _, words = heard(model, ids())
    assert "1 router (blocks.1: top-2 of 8, Mixtral-like structure)" in words
    assert "not the router blocks.0 (its forward was replaced on the instance; watch the model before that)" in words


# ---- nothing remains after removal ---------------------------------------------------------------


def test_a_model_that_is_watched_can_be_scripted_and_traced():
    model = nn.Sequential(Scripted())
    _, routers = watched(model)
    x = torch.randn(4, H)
    for other in (torch.jit.script(model), torch.jit.trace(model, x), torch.fx.symbolic_trace(model)):
        assert torch.equal(other(x), model(x))
    routers.remove()


def test_remove_takes_everything_away():
    model = made("switch")
    plain = {type(m): type(m).__dict__.get("forward") for m in model.modules()}
    _, routers = watched(model)
    assert router_kinds.SwitchRouter.forward is not plain[router_kinds.SwitchRouter]
    routers.remove()
    assert {kind: kind.__dict__.get("forward") for kind in plain} == plain
    assert not any(m._forward_pre_hooks for m in model.modules()) and not routers_watched._Classes.entries


def test_a_copy_and_a_saved_model_are_what_they_were():
    model = made("mixtral")
    run, routers = watched(model)
    twin = copy.deepcopy(model)
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    routers.forward(True)
    twin(ids())
    torch.load(saved, weights_only=False)(ids())
    routers.step_ends()
    assert run.calls == []
    routers.remove()


def test_the_trainers_exception_goes_through_and_the_next_call_is_heard():
    model = made("mixtral")
    run, routers = watched(model)
    routers.forward(True)
    handle = model.blocks[1].experts[0].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(ids())
    handle.remove()
    model(ids())
    routers.step_ends()
    assert [layer for layer, _ in run.calls] == ["blocks.0", "blocks.0", "blocks.1"]
    routers.remove()


# ---- the real run -------------------------------------------------------------------------------

CODE = """
    import plumbline, torch, router_kinds
    from torch import nn
    from torch.utils.checkpoint import checkpoint
    run = plumbline.init(run="exp1", record="runs", every=1)
    seen, plain = [], run._observe_due
    run._observe_due = lambda layer, *call: (seen.append((run._step, layer)), plain(layer, *call))[1]
    model = router_kinds.Model(router_kinds.MixtralLike)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.randint(0, 64, (8, 32))
    {body}
    run.finish()
"""


def reported(tmp_path, body):
    body = "\n".join("    " + line for line in body.strip().splitlines()).strip()
    return trainer.run(CODE.format(body=body), tmp_path, warm=True, PYTHONPATH=f"{pathlib.Path(__file__).parent}:{os.environ['PYTHONPATH']}").ok()


def test_steps_and_micro_batches(tmp_path):
    outcome = reported(tmp_path, """
run.watch(model, opt)
for step in range(2):
    for m in range(2): model(ids).sum().backward()
    opt.step(); opt.zero_grad()
    model.eval(); model(ids); model.train()
print(seen)
""")  # fmt: skip
    assert outcome.out == str([(s, f"blocks.{b}") for s, order in ((0, (0, 0, 1, 1)), (1, (0, 1, 0, 1))) for b in order]) + "\n"
    assert "2 routers (blocks.0 and 1 more: top-2 of 8, Mixtral-like structure)" in outcome.err


def test_what_the_trainer_reports_itself_is_not_reported_twice(tmp_path):
    outcome = reported(tmp_path, """
run.watch(model, opt)
for step in range(2):
    model(ids)
    run.observe_routing("blocks.1", torch.eye(8), topk_indices=torch.arange(8)[:, None], top_k=1)
    model.head.weight.sum().backward(); opt.step(); opt.zero_grad()
print(seen)
""")  # fmt: skip
    assert outcome.out == str([(0, "blocks.1"), (0, "blocks.0"), (1, "blocks.0"), (1, "blocks.1")]) + "\n"


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_forward_pass_that_is_computed_again_is_reported_once(tmp_path, reentrant):
    outcome = reported(tmp_path, f"""
plain_block = router_kinds.MixtralLike
class Saved(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = plain_block()
    def forward(self, x):
        return checkpoint(self.inside, x, use_reentrant={reentrant})
model = router_kinds.Model(Saved)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
run.watch(model, opt)
for step in range(2):
    model(ids).sum().backward(); opt.step(); opt.zero_grad()
print(seen)
""")  # fmt: skip
    assert outcome.out == str([(s, f"blocks.{b}.inside") for s in (0, 1) for b in (0, 1)]) + "\n"


def test_what_breaks_inside_never_reaches_the_trainer(tmp_path):
    outcome = reported(tmp_path, """
import plumbline._routers.watched as w, plumbline._routers.trace as t
run.watch(model, opt)
t.Follower.note = None
model(ids).sum().backward(); opt.step(); opt.zero_grad()
w.Router._begin = w.Routers.step_ends = None
model(ids).sum().backward(); opt.step()
w.find = None
run.watch(nn.Sequential(model), opt).remove()
print("trained")
""")  # fmt: skip
    assert outcome.out == "trained\n" and "printed once; the trainer continues" in outcome.err
