"""run.watch if parameters differ in kind: unused under DDP, frozen, tied, and an optimizer's moments. Healthy ones are silent and
give equal bits. For each of them, the most similar mistake is named."""

import json
import os
import pathlib
import subprocess

import pytest
import warm

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
PLUMB = BUILD / "bin" / "plumb"
TRAINER = pathlib.Path(__file__).with_name("parameters_trainer.py")
SEEDS = range(20 if os.environ.get("PLUMB_LONG") else 1)
pytestmark = pytest.mark.skipif(not (BUILD / "lib" / "libplumbline_agent.so").exists(), reason="the agent is not built")


WEIGHTS = 150  # steps within which weights are examined three times, also on a busy machine


def train(directory, record, kind, seed, steps=48):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    env.update(STEPS=str(steps), PAUSE="0.02" if steps > 48 else "0.005", PLUMBLINE_EVERY="1")  # a busy machine does not reduce the number of looks
    done = warm.run([TRAINER, record, kind, seed], directory, env, 600)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def audit(directory):
    done = subprocess.run([PLUMB, "audit", "runs", "--format", "json", "--quiet"], cwd=directory, capture_output=True, text=True,
                          check=False)  # fmt: skip
    return json.loads(done.stdout)


def found(directory, kind, seed, steps=48):
    train(directory, "runs", kind, seed, steps)
    return audit(directory)["findings"]


# unused:local: DDP ignores a layer that only one rank uses, so it has no copies that must agree.
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["unused", "unused:local", "frozen", "tied", "moments", "moments:falls"])
def test_healthy_ones_are_silent_and_unchanged(tmp_path, kind, seed):
    watched = train(tmp_path, "runs", kind, seed, WEIGHTS if kind == "moments:falls" else 48)
    if kind in ("unused", "frozen", "tied"):
        assert watched == train(tmp_path, "none", kind, seed)
    report = audit(tmp_path)
    assert [f for f in report["findings"] if f["level"] != "note"] == []
    passed = {(v["rule"], v["site"]["layer"]) for v in report["verdicts"] if v["verdict"] == "pass"}
    assert ("health/unchanged-tensor", "head.weight" if kind != "tied" else "embed.weight") in passed or kind == "moments:falls"
    if kind == "moments:falls":
        assert ("precision/moment-ratchet", "head.weight") in passed


# A layer that no step uses is still a copy.
@pytest.mark.parametrize("seed", SEEDS)
def test_an_unused_layer_that_drifts_is_named(tmp_path, seed):
    reported = {(f["rule"], f["site"]["layer"]) for f in found(tmp_path, "unused:drifts", seed)}
    assert ("precision/replica-divergence", "never.weight") in reported
    rules = {rule for rule, _ in reported if not rule.startswith("performance/")}  # the machine may be busy
    assert rules == {"precision/replica-divergence", "health/no-gradient"}  # the latter is a note, because the layer never
                                                                                                     # runs


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_that_was_left_out_is_not_taken_for_a_frozen_one(tmp_path, seed):
    reported = {(f["rule"], f["site"]["layer"].rpartition(".")[0]) for f in found(tmp_path, "frozen:held", seed, WEIGHTS)}
    parts = {f"blocks.0.{part}" for part in ("down", "ln1", "ln2", "proj", "qkv", "up")}
    assert reported == {("health/unchanged-tensor", part) for part in parts}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tie_that_was_lost_is_named(tmp_path, seed):
    reported = {(f["rule"], f["site"]["layer"]) for f in found(tmp_path, "tied:untied", seed, WEIGHTS)}
    assert reported == {("health/unchanged-tensor", "head.weight")}


# The finding has one name, although two layers use the weight.
@pytest.mark.parametrize("seed", SEEDS)
def test_a_nan_in_a_tied_weight_is_one_finding(tmp_path, seed):
    reported = [(f["rule"], f["site"]["layer"], f["site"]["step_first"]) for f in found(tmp_path, "tied:nan", seed) if f["site"]["op"] != "grad_norm"]
    assert sorted(reported) == [("health/loss-non-finite", "", 30), ("precision/non-finite", "embed.weight", 30)]


@pytest.mark.parametrize("seed", SEEDS)
def test_moments_that_cannot_fall_are_named(tmp_path, seed):
    rules = {f["rule"] for f in found(tmp_path, "moments:ratchet", seed, WEIGHTS)}
    assert "precision/moment-ratchet" in rules
    assert rules <= {"precision/moment-ratchet", "precision/lost-update"}  # the weights are bf16, too


# The update of step 30 writes the NaN into the weight; step 31 finds it there.
@pytest.mark.parametrize("seed", SEEDS)
def test_a_nan_moment_is_named_next_to_its_weight(tmp_path, seed):
    (one,) = [f for f in found(tmp_path, "moments:nan", seed) if f["rule"] == "precision/non-finite"]
    assert (one["site"]["layer"], one["site"]["op"], one["site"]["step_first"]) == ("blocks.1.down.weight", "parameter", 31)
    assert "Its exp_avg holds 1 NaN: the update was computed from it" in one["explanation"]
