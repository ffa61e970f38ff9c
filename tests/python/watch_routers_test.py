"""run.watch hooks routers: what is observed is what happened, leaks are named, nothing else is, and nothing changes."""

import copy
import io
import json
import os
import pathlib
import subprocess

import pytest
import torch
from torch import nn

import router_kinds
import trainer
import warm
from plumbline._routers import watched as routers_watched
from router_kinds import E, H
from router_runs import EXPERTS_CHOOSE, TOKENS_CHOOSE, Moved, heard, ids, made, truth, watched

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
AGENT, PLUMB = BUILD / "lib" / "libplumbline_agent.so", BUILD / "bin" / "plumb"
TRAINER = pathlib.Path(__file__).with_name("watched_routers.py")
NONE = ["gated-unit", "sparse-attention", "classifier"]
NOISE = {"deepspeed-rts": "token-selection"}


# ---- what is observed is what happened ----------------------------------------------------------


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
    """The top-k of what was recorded, by itself."""
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


# ---- what is not observed -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", NONE)
def test_what_is_no_router_is_not_taken_for_one(kind):
    assert heard(made(kind), ids()) == ([], [], "")


class Unknown(router_kinds.MixtralLike):
    """Says that it has a capacity; the experts' work is one call that cannot be heard."""

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
    """Tokens choose, by a function that cannot be heard; which tokens each expert likes best is looked at for a log."""

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


# ---- nothing is left behind ---------------------------------------------------------------------


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
    told, plain = [], run._observe_due
    run._observe_due = lambda layer, *call: (told.append((run._step, layer)), plain(layer, *call))[1]
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
print(told)
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
print(told)
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
print(told)
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


# ---- the real agent and the rules ---------------------------------------------------------------

real = pytest.mark.skipif(not AGENT.exists(), reason="the agent is not built")
SEEDS = range(20 if os.environ.get("PLUMB_LONG") else 1)


def train(directory, record, kind, seed=0):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    env["STEPS"] = "40"
    done = warm.run([TRAINER, record, kind, seed], directory, env, 600)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def findings(directory, record):
    done = subprocess.run([PLUMB, "audit", record, "--format", "json", "--quiet"], cwd=directory, capture_output=True, text=True,
                          check=False)  # fmt: skip
    return {(f["rule"], f["strength"]) for f in json.loads(done.stdout)["findings"]}


LEAK, BATCH = "causality/moe-future-leak", "causality/moe-batch-dependence"


@real
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["mixtral", "switch", "megatron", "megatron-position", "megatron-bias", "noisy", "noisy-capacity",
                                  "group-limited", "sinkhorn", *NONE])  # fmt: skip
def test_nothing_changes_and_none_is_accused_of_a_leak(tmp_path, kind, seed):
    plain, _ = train(tmp_path, "none", kind, 5 + seed)
    watched, stated = train(tmp_path, "runs", kind, 5 + seed)
    assert watched == plain and "Warning" not in stated
    rules = {rule for rule, _ in findings(tmp_path, "runs")}
    if kind == "megatron-position":
        rules.discard("health/all-zero")  # its one probability is 1 whatever the scores: true, and told after ten looks
    # First come first served depends on the rest of the batch, where the pool is all of it.
    assert rules == ({BATCH} if kind in ("megatron-position", "noisy-capacity") else set())


# Which of the two was kept cannot be seen in that call; in the others it can.
@real
def test_a_call_with_two_equal_tokens_warns_none(tmp_path):
    _, stated = train(tmp_path, "runs", "noisy-capacity", 9)
    assert "Warning" not in stated


@real
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind, strength", [*((kind, "proved") for kind in EXPERTS_CHOOSE), ("megatron-probs", "proved"),
                                            ("score-drop-map", "proved"), ("score-drop", "heuristic"), ("deepspeed-top2", "heuristic"),
                                            ("deepspeed-rts", "heuristic")])  # fmt: skip
def test_a_leak_is_named_and_nothing_changes(tmp_path, kind, strength, seed):
    plain, _ = train(tmp_path, "none", kind, seed)
    watched, _ = train(tmp_path, "runs", kind, seed)
    assert watched == plain
    found = findings(tmp_path, "runs")
    assert (LEAK, strength) in found
    assert {rule for rule, _ in found} <= {LEAK, BATCH}


SHORT = """
import hashlib, sys
import torch
from torch import nn
import plumbline
from router_kinds import KINDS, Model, SwitchLike
record, kind, dead, seed = sys.argv[1], sys.argv[2], sys.argv[3] == "dead", int(sys.argv[4])
torch.manual_seed(seed)
torch.set_num_threads(1)
if record != "none":
    run = plumbline.init(run="short", record=record, budget=1)
model = Model((lambda: SwitchLike(7)) if kind == "switch" else KINDS[kind])
if dead:
    layer, hated = model.blocks[1], torch.zeros(8).index_fill(0, torch.tensor([3]), -100.0)
    if kind == "group-limited":
        layer.e_score_correction_bias += hated
    elif kind == "megatron-bias":
        layer.router.expert_bias += hated
    else:
        gate = layer.gate if kind == "mixtral" else layer.router.classifier
        gate.bias = nn.Parameter(hated, requires_grad=False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
if record != "none":
    run.watch(model, optimizer)
seen, made, loads, whole = hashlib.sha256(), 0, torch.zeros(2, 8), torch.zeros(2, 8)
for step in range(300):
    ids = torch.randint(0, 64, (8, 33))
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward(); optimizer.step(); optimizer.zero_grad()
    seen.update(loss.detach().numpy().tobytes())
    for block, load, of_all in zip(model.blocks, loads, whole):
        true = next(m.true for m in block.modules() if hasattr(m, "true"))
        counts = torch.bincount(true["indices"][true["kept"].bool()], minlength=8)
        of_all += counts
        load += counts if step >= 200 else 0
    made += true["indices"].numel() if step >= 200 else 0
least = [(each / each.mean(1, keepdim=True)).amin(1).tolist() for each in (loads, whole)]
print(seen.hexdigest(), 1 - loads.sum(1).min().item() / made, *least[0], *least[1])
if record != "none":
    run.finish()
"""


def short_run(directory, record, *how):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    env["PYTHONPATH"] = f"{os.environ['PYTHONPATH']}:{pathlib.Path(__file__).parent}"
    done = warm.run(["-c", SHORT, record, *how], directory, env, 600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@real
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind, how", [("mixtral", "healthy"), *((k, "dead") for k in ("mixtral", "switch", "megatron-bias", "group-limited")),
                                       *([(k, "healthy") for k in ("switch", "megatron-bias", "group-limited")] if len(SEEDS) > 1 else [])])  # fmt: skip
def test_three_hundred_steps_are_a_run(tmp_path, kind, how, seed):
    reported = short_run(tmp_path, "runs", kind, how, str(seed))
    assert reported == short_run(tmp_path, "none", kind, how, str(seed))
    done = subprocess.run([PLUMB, "audit", "runs", "--format", "json", "--quiet"], cwd=tmp_path, capture_output=True, text=True,
                          check=False)  # fmt: skip
    report = json.loads(done.stdout)
    found = {(f["rule"], f["site"]["layer"].removesuffix(".router")) for f in report["findings"]}
    found = {one for one in found if one[0] != "health/expert-imbalance"}  # nothing balances the loads here
    refused = float(reported.split()[1])  # by the trainer's own count, in the last 100 steps
    assert (kind == "switch") == (refused > 0)
    titles = {f["title"] for f in report["findings"] if f["rule"] == "health/drop-rate"}
    if kind == "switch":  # tokens queue: the late ones of a sequence are refused, at whatever total
        assert titles <= {"late tokens are dropped more often than early ones", *(["full experts drop too many tokens"] if refused > 0.08 else [])}
        found = {one for one in found if one[0] != "health/drop-rate"}
    # The least load over the ideal, counted there: of the last 100 steps and of all. What the rule saw are steps of the second kind, most of
    # them late, of a share that moves.
    least = [float(share) for share in reported.split()[2:]]
    shares = {f"blocks.{n}": (least[n], least[n + 2]) for n in range(2)}
    assert how == "healthy" or shares["blocks.1"][0] == 0
    dead = {layer for rule, layer in found if rule == "health/dead-expert"}
    assert {layer for layer, both in shares.items() if max(both) < 0.08} <= dead <= {layer for layer, both in shares.items() if min(both) < 0.12}
    assert found == {("health/dead-expert", layer) for layer in dead}
    untold = {v["rule"] for v in report["verdicts"] if v["verdict"] == "inconclusive" and "few-steps" in v["reason"]}
    assert not untold & {"health/dead-expert", "health/expert-imbalance", "health/router-collapse"}
