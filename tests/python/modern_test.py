"""run.watch with the features of this torch: sharding, compilation, fused optimizers, hooks. tests/packaging runs it under torch 2, too.

A healthy run is silent and equal bit for bit, a NaN is reported at its step, and modules that cannot be hooked are named.
"""

import json
import os
import pathlib
import subprocess

import pytest

import modern_trainer as trainer
import warm

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
PLUMB = BUILD / "bin" / "plumb"
pytestmark = pytest.mark.skipif(not (BUILD / "lib" / "libplumbline_agent.so").exists(), reason="the agent is not built")
UNHOOKED = {"compile-after": "blocks.1 within torch.compile", "compile-router": "experts within torch.compile",
            "compile-router-after": "experts within torch.compile"}  # fmt: skip
# A kind takes some seconds because of its imports. The short run of the tests has only a few kinds.
KINDS = trainer.ALONE + trainer.RANKS
SHORT = ["lbfgs", "checkpoint", "ddp-powersgd"]
CHOSEN = KINDS if os.environ.get("PLUMB_LONG") else SHORT


def train(directory, kind, fault, record):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    done = warm.run([trainer.__file__, kind, fault, record], directory, env, 600)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines()), {line for line in done.stderr.splitlines() if "Warning: " in line and not line.startswith("[W")}


def findings(directory):
    done = subprocess.run([PLUMB, "audit", "runs", "--format", "json", "--quiet"], cwd=directory, capture_output=True, text=True, check=False)  # fmt: skip
    return [f for f in json.loads(done.stdout)["findings"] if f["level"] != "note"]


@pytest.mark.parametrize("kind", CHOSEN)
def test_a_healthy_run_is_silent_and_the_same(tmp_path, kind):
    plain, warned = train(tmp_path, kind, "none", "none")
    watched, warns = train(tmp_path, kind, "none", "runs")
    assert watched == plain and len(plain) == (1 if kind in trainer.ALONE else 2)
    assert warns == warned
    found = {(f["rule"], f["site"]["layer"]) for f in findings(tmp_path)}
    assert found == ({("meta/probe-coverage", UNHOOKED[kind])} if kind in UNHOOKED else set())


@pytest.mark.parametrize("kind", CHOSEN)
def test_a_nan_loss_is_reported_at_its_step(tmp_path, kind):
    train(tmp_path, kind, "nan", "runs")
    found = findings(tmp_path)
    first = {f["rule"]: f["site"]["step_first"] for f in found}
    assert first.get("health/loss-non-finite") == trainer.AT and first.get("precision/non-finite") == trainer.AT
    # Tensor parallelism keeps some tensors whole on each rank. One rank's copy holds a NaN now.
    copies = {"precision/replica-divergence"} if kind == "tensor-parallel" else set()
    assert set(first) <= {"health/loss-non-finite", "precision/non-finite", "meta/probe-coverage"} | copies
