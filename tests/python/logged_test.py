"""Numbers that a trainer logs reach health/metric-truth in their step, from run.scalar and from loggers, also between light steps."""

import json
import os
import pathlib
import subprocess

import pytest
import warm

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
pytestmark = pytest.mark.skipif(not (BUILD / "lib" / "libplumbline_agent.so").exists(), reason="the agent is not built")

# `way`: scalar (run.scalar), writer (a SummaryWriter), own (run.scalar with the watch's own name), light (a writer, every 20 steps).
# `factor`: of the logged norm. Prints the weights and the number of light steps.
TRAINER = """
import sys, types, hashlib, torch
way, factor, record = sys.argv[1], float(sys.argv[2]), sys.argv[3]
writer = types.ModuleType("tensorboardX.writer")
class SummaryWriter:
    given = []
    def add_scalar(self, tag, scalar_value, global_step=None): SummaryWriter.given.append((tag, scalar_value, global_step))
writer.SummaryWriter = SummaryWriter
sys.modules["tensorboardX.writer"] = writer
plain = SummaryWriter.add_scalar
import plumbline
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
run = watch = None
if record != "none":
    run = plumbline.init(run="logged", record=record, strict=True, budget=1 if way != "light" else 0.01)
    watch = run.watch(model, optimizer)
logger, light = SummaryWriter(), 0
for step in range(900 if way == "light" else 60):
    x = torch.randn(16, 32); y = x[:, :8].argmax(1)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    norm = factor * float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5))
    if run and way == "scalar": run.scalar("train/grad_norm", norm)
    if run and way == "own": run.scalar("grad_norm", norm)
    if way == "writer": logger.add_scalar("train/grad_norm", norm, step)
    light += bool(watch and watch.light)
    optimizer.step()
    optimizer.zero_grad()
    if way == "light" and step % 20 == 19: logger.add_scalar("train/grad_norm", norm, step)
if run:
    assert run.finish()
    watch.remove()
    assert SummaryWriter.__dict__["add_scalar"] is plain
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest(), light, len(SummaryWriter.given))
"""


def trained(way, factor, record):
    done = subprocess.run([warm.python(), "-c", TRAINER, way, str(factor), str(record)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    weights, light, given = done.stdout.split()
    return weights, int(light), int(given)


def findings(record):
    done = subprocess.run([BUILD / "bin/plumb", "audit", "--format", "json", record], capture_output=True, text=True, timeout=120)
    report = json.loads(done.stdout)
    return report, {f["rule"]: f for f in report["findings"]}


@pytest.mark.parametrize("way", ["scalar", "own", "writer", "light"])
def test_a_norm_that_is_logged_doubled_is_found(tmp_path, way):
    _, light, _ = trained(way, 2, tmp_path / "r")
    assert way != "light" or light > 500
    _, found = findings(tmp_path / "r")
    assert "health/metric-truth" in found, found
    one = found["health/metric-truth"]
    assert one["level"] == "note" and one["cause"]["id"] == "constant-factor" and abs(one["measured"]["value"] - 2) < 0.01


@pytest.mark.parametrize("way", ["scalar", "own", "writer", "light"])
def test_a_right_norm_passes_and_the_results_stay(tmp_path, way):
    plain, _, logged = trained(way, 1, "none")
    watched, light, given = trained(way, 1, tmp_path / "r")
    assert plain == watched and given == logged and (way != "light" or light > 500)
    report, found = findings(tmp_path / "r")
    assert [f["rule"] for f in report["findings"] if f["level"] != "note"] == [] and "health/metric-truth" not in found
    assert any(one["rule"] == "health/metric-truth" and one["verdict"] == "pass" for one in report["verdicts"])


AFTER = """
import sys, torch, plumbline
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Linear(16, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
run = plumbline.init(run="after", record=sys.argv[1])
run.watch(model, optimizer)
for step in range(300):
    loss = model(torch.randn(16, 16)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    run.scalar("train/loss", loss.item())
    run.scalar("constant", 7)
assert run.finish()
"""


def test_a_scalar_after_the_step_belongs_to_the_next_one(tmp_path):
    """Most trainers log after optimizer.step(), when no step is open. Only the values after the last step are not recorded, and stated."""
    record = tmp_path / "record"
    done = subprocess.run([warm.python(), "-c", AFTER, str(record)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "no step is open" not in done.stderr and "the last values of 2 series" in done.stderr
    lines = subprocess.run([BUILD / "bin/agent_record_json", *record.iterdir()], capture_output=True, text=True, check=True).stdout.splitlines()
    series = {}
    for item in map(json.loads, lines):
        evidence = item.get("evidence", {})
        if "scalar" in evidence:
            series.setdefault(evidence["site"]["op"], {})[int(evidence.get("step", 0))] = evidence["scalar"].get("value", 0.0)
    assert len(series["loss"]) == 300
    assert series["train/loss"] == {step + 1: value for step, value in series["loss"].items() if step < 299}
    assert series["constant"] == dict.fromkeys(range(1, 300), 7)
