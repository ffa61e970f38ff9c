"""Routers of a watched model, with the real agent and the rules: healthy ones are silent, leaks and dead experts are named."""

import json
import os
import pathlib
import subprocess

import pytest
import warm
from router_runs import EXPERTS_CHOOSE

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
AGENT, PLUMB = BUILD / "lib" / "libplumbline_agent.so", BUILD / "bin" / "plumb"
TRAINER = pathlib.Path(__file__).with_name("watched_routers.py")
NONE = ["gated-unit", "sparse-attention", "classifier"]
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
def test_nothing_changes_and_no_fault_is_found_of_a_leak(tmp_path, kind, seed):
    plain, _ = train(tmp_path, "none", kind, 5 + seed)
    watched, printed = train(tmp_path, "runs", kind, 5 + seed)
    assert watched == plain and "Warning" not in printed
    rules = {rule for rule, _ in findings(tmp_path, "runs")}
    if kind == "megatron-position":
        rules.discard("health/all-zero")  # its only probability is 1 for any scores, which is true, and is found after ten looks
    # First come first served depends on the other tokens of the batch, because the pool is the whole batch.
    assert rules == ({BATCH} if kind in ("megatron-position", "noisy-capacity") else set())


# That call does not show which of the two was kept; the other calls do.
@real
def test_a_call_with_two_equal_tokens_prints_no_warning(tmp_path):
    _, printed = train(tmp_path, "runs", "noisy-capacity", 9)
    assert "Warning" not in printed


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
    printed = short_run(tmp_path, "runs", kind, how, str(seed))
    assert printed == short_run(tmp_path, "none", kind, how, str(seed))
    done = subprocess.run([PLUMB, "audit", "runs", "--format", "json", "--quiet"], cwd=tmp_path, capture_output=True, text=True,
                          check=False)  # fmt: skip
    report = json.loads(done.stdout)
    found = {(f["rule"], f["site"]["layer"].removesuffix(".router")) for f in report["findings"]}
    found = {one for one in found if one[0] != "health/expert-imbalance"}  # this router does not balance the loads
    refused = float(printed.split()[1])  # by the trainer's own count, in the last 100 steps
    assert (kind == "switch") == (refused > 0)
    titles = {f["title"] for f in report["findings"] if f["rule"] == "health/drop-rate"}
    if kind == "switch":  # tokens queue, so the late tokens of a sequence are refused, for any total
        assert titles <= {"late tokens are dropped more often than early ones", *(["full experts drop too many tokens"] if refused > 0.08 else [])}
        found = {one for one in found if one[0] != "health/drop-rate"}
    # The trainer's smallest ratio of load to ideal load: over the last 100 steps, and over all steps. The rule saw some of all steps, most of them
    # late ones, and the share changes over time.
    least = [float(share) for share in printed.split()[2:]]
    shares = {f"blocks.{n}": (least[n], least[n + 2]) for n in range(2)}
    assert how == "healthy" or shares["blocks.1"][0] == 0
    dead = {layer for rule, layer in found if rule == "health/dead-expert"}
    assert {layer for layer, both in shares.items() if max(both) < 0.08} <= dead <= {layer for layer, both in shares.items() if min(both) < 0.12}
    assert found == {("health/dead-expert", layer) for layer in dead}
    undecided = {v["rule"] for v in report["verdicts"] if v["verdict"] == "inconclusive" and "few-steps" in v["reason"]}
    assert not undecided & {"health/dead-expert", "health/expert-imbalance", "health/router-collapse"}
