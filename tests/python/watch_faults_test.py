"""run.watch with the real agent and a language model: nothing changes, faults are named, healthy runs have no finding."""

import json
import os
import pathlib
import subprocess

import pytest
import warm

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
AGENT, PLUMB = BUILD / "lib" / "libplumbline_agent.so", BUILD / "bin" / "plumb"
TRAINER = pathlib.Path(__file__).with_name("watched_trainer.py")
real = pytest.mark.skipif(not AGENT.exists(), reason="the agent is not built")
LONG = bool(os.environ.get("PLUMB_LONG"))
SEEDS = range(20 if LONG else 1)


def train(directory, record, fault, seed=0, ranks=1, count=60, pause=0.0, governed=True):
    """`governed` False: a busy machine does not reduce the number of looks."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    env.update(STEPS=str(count), PAUSE=str(pause), START_RANKS="fork", **({} if governed else {"PLUMBLINE_EVERY": "1"}))
    done = warm.run([TRAINER, record, fault, seed, ranks], directory, env, 600)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines()), done.stderr


def warnings(printed):
    """Returns Python's warnings, without the lines of torch's libraries."""
    return {line for line in printed.splitlines() if "Warning: " in line and not line.startswith("[W")}


def findings(directory, record):
    done = subprocess.run([PLUMB, "audit", record, "--format", "json", "--quiet"], cwd=directory, capture_output=True,
                          text=True, check=False)  # fmt: skip
    return json.loads(done.stdout)["findings"]


@real
@pytest.mark.parametrize("fault, ranks", [("wd", 1), ("accumulation", 1), ("none", 2), ("accumulation", 2), ("hook-before", 2),
                                          ("hook-after", 2)])  # fmt: skip
def test_nothing_changes_and_no_fault_is_found(tmp_path, fault, ranks):
    plain, before = train(tmp_path, "none", fault, seed=3, ranks=ranks, count=40)
    watched, printed = train(tmp_path, "runs", fault, seed=3, ranks=ranks, count=40)
    assert len(plain) == ranks and watched == plain
    assert warnings(printed) == warnings(before)  # torch itself warns under newer Pythons
    assert findings(tmp_path, "runs") == []


# Four ranks, since the sum of two has no partial sum that could be rounded. Registered before watch, or after it.
@real
@pytest.mark.parametrize("seed", SEEDS)
def test_a_ring_in_fp16_is_named_from_its_first_step(tmp_path, seed):
    train(tmp_path, "runs", "hook-after" if seed % 2 else "hook-before", seed, ranks=4, count=40)
    (one,) = findings(tmp_path, "runs")
    assert (one["rule"], one["strength"], one["cause"]["id"]) == ("precision/collective-sum", "proved", "16-bit-partial-sums")
    assert (one["site"]["step_first"], one["site"]["ranks"], one["details"]["model"]["dtype"]) == (0, [0, 1, 2, 3], "f16")


@real
@pytest.mark.parametrize("seed", SEEDS)
def test_a_ring_in_fp32_has_no_finding(tmp_path, seed):
    train(tmp_path, "runs", "none", seed, ranks=4, count=40)
    assert findings(tmp_path, "runs") == []


@real
@pytest.mark.parametrize("seed", range(20 if LONG else 4))
def test_a_loss_that_is_NaN_is_found_at_its_step(tmp_path, seed):
    train(tmp_path, "runs", "nan", seed)
    found = findings(tmp_path, "runs")
    # The gradient norm is another site of the loss's incident, in the next step in which one is recorded.
    assert {(f["rule"], f["site"]["step_first"]) for f in found if f["site"]["op"] != "grad_norm"} == {(r, 50) for r in ("precision/non-finite", "health/loss-non-finite")}
    (one,) = [f for f in found if f["rule"] == "precision/non-finite"]
    assert one["site"]["op"] == "gradient" and "The loss of this step is NaN or infinite" in one["explanation"], one["explanation"]
    assert "/gradient (" in one["explanation"]  # examined in that step, outside of the cadence
    assert "weights were observed in this step, and finite; no activation was." in one["explanation"]


@real
@pytest.mark.parametrize("seed, ranks", [(seed, 1 + (seed > 1)) for seed in range(20 if LONG else 3)])
def test_a_weight_that_is_NaN_is_found_before_its_consequences(tmp_path, seed, ranks):
    train(tmp_path, "runs", "nan-weight", seed, ranks=ranks)
    (one,) = [f for f in findings(tmp_path, "runs") if f["rule"] == "precision/non-finite"]
    site = one["site"]
    assert (site["layer"], site["step_first"], site["ranks"]) == ("blocks.1.down.weight", 50, [ranks - 1])
    assert one["title"] == "first non-finite weight before its update: 1 NaN"
    assert "The weight already had it at the start of this step." in one["explanation"]


# Steps of 50 ms: then the weights are compared in nearly every one.
@real
@pytest.mark.parametrize("seed", range(20 if LONG else 2))
def test_a_bit_flipped_on_one_rank_is_found_at_its_step(tmp_path, seed):
    train(tmp_path, "runs", "flip", seed, ranks=2, count=66, pause=0.05, governed=False)
    found = findings(tmp_path, "runs")
    assert {f["rule"] for f in found} == {"precision/replica-divergence"}
    (whole,) = [f for f in found if f["site"]["op"] == "weights_checksum"]
    assert 41 <= whole["site"]["step_first"] <= 64  # the bit flips after step 40; on an idle machine step 41 or 42 is found
    assert whole["witness"]["last step that agrees"] <= 40
    (one,) = [f for f in found if f["site"]["op"] == "weight"]
    assert one["site"]["layer"] == "head.bias" and one["witness"].get("element", 3) == 3
    assert whole["cause"] == one["cause"]  # one incident


@real
@pytest.mark.parametrize("seed", SEEDS)
def test_weights_in_16_bits_lose_their_updates(tmp_path, seed):
    train(tmp_path, "runs", "bf16", seed)
    rules = {f["rule"] for f in findings(tmp_path, "runs")}
    assert "precision/lost-update" in rules
    assert rules <= {"precision/lost-update", "precision/moment-ratchet", "health/not-learning"}  # which follows from this


# ---- faults in a loop -----------------------------------------------------------------------------

# fault, ranks, steps, the rule that must report it, and a rule that may report it too
FAULTS = [
    ("lr-0", 1, 40, "health/learning-rate", ()),
    ("no-zero-grad", 1, 40, "precision/stale-gradient", ()),
    ("not-held", 1, 80, "health/unchanged-tensor", ()),
    ("no-sync", 2, 40, "precision/replica-divergence", ()),
    ("one-shard", 2, 200, "health/same-data", ()),
    ("bf16-accumulation", 1, 66, "precision/grad-accumulation", ("precision/moment-ratchet", "precision/lost-update")),
]


@real
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault, ranks, count, rule, others", FAULTS, ids=[f[0] for f in FAULTS])
def test_the_fault_is_named(tmp_path, fault, ranks, count, rule, others, seed):
    train(tmp_path, "runs", fault, seed, ranks, count, pause=0.03, governed=False)
    rules = {f["rule"] for f in findings(tmp_path, "runs")}
    assert rule in rules and rules <= {rule, *others}


@real
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ranks, count", [(1, 300), (2, 100)])
def test_a_healthy_run_is_silent_and_judged(tmp_path, ranks, count, seed):
    train(tmp_path, "runs", "none", 40 + seed, ranks, count, pause=0.01, governed=False)
    done = subprocess.run([PLUMB, "audit", "runs", "--format", "json", "--quiet"], cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
    report = json.loads(done.stdout)
    slow = "performance/straggler"  # on a busy machine one of two processes really is
    assert [f for f in report["findings"] if f["level"] != "note" and f["rule"] != slow] == []
    if count == 300:  # default settings reach a verdict in a short run
        passed = {v["rule"] for v in report["verdicts"] if v["verdict"] == "pass"}
        assert {"precision/lost-update", "precision/moment-ratchet", "precision/epsilon-underflow"} <= passed


LOOPS = """
import sys, torch, plumbline
from torch import nn
torch.manual_seed(int(sys.argv[2])); torch.set_num_threads(1)
one, two = nn.Linear(8, 64), nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
first, second = torch.optim.Adam(one.parameters(), 1e-3), torch.optim.Adam(two.parameters(), 1e-3)
run = plumbline.init(run="two", record="runs", every=1)
run.watch(nn.ModuleList([one, two]), [first, second])
for i in range(24):
    for _ in range(int(sys.argv[1])):  # the critic, or the discriminator
        second.zero_grad() if sys.argv[3] == "cleared" else None
        two(one(torch.randn(16, 8)).detach()).pow(2).mean().backward()
        second.step()
    first.zero_grad()
    two(one(torch.randn(16, 8))).mean().backward()  # adds to the other's gradients, too
    first.step()
run.finish()
"""


# A gradient that is cleared before it is used is not stale.
@real
@pytest.mark.parametrize("times, cleared", [*((n, "cleared") for n in "123"), ("2", "never"), ("3", "never")])
def test_what_one_backward_pass_leaves_in_the_others_parameters(tmp_path, times, cleared):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    for seed in range(2):
        warm.run(["-c", LOOPS, times, seed, cleared], tmp_path, env).check_returncode()
    found = {(f["rule"], f["site"]["layer"].partition(".")[0]) for f in findings(tmp_path, "runs") if f["level"] != "note"}
    assert found == (set() if cleared == "cleared" else {("precision/stale-gradient", "1")})
