"""Verdicts of short runs at the default budget do not depend on the machine's pace: steps of 2, 20 and 200 ms by clocks that the trainer makes up."""

import json
import os
import pathlib
import subprocess

import pytest
import warm

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
PLUMB = BUILD / "bin" / "plumb"
pytestmark = pytest.mark.skipif(not (BUILD / "lib" / "libplumbline_agent.so").exists(), reason="the agent is not built")
LONG = bool(os.environ.get("PLUMB_LONG"))
PACES = (2, 20, 200) if LONG else (2,)

# Each query of a clock takes 20 us, so hooks have a cost. Otherwise only steps advance the clock.
TRAINER = """
import sys, time
fault, step_ms, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
now = [0]
def clock():
    now[0] += 20_000
    return now[0]
time.thread_time_ns, time.thread_time, time.clock_gettime_ns = clock, lambda: clock() / 1e9, lambda _: 0
import torch, plumbline
from torch import nn
from router_kinds import KINDS, Model
torch.manual_seed(0); torch.set_num_threads(1)
routed = fault in ("dead", "collapsed", "balanced")
if routed:
    model = Model(KINDS["mixtral"])
    bias = torch.zeros(8)
    if fault == "dead": bias[2:] = -100
    if fault == "collapsed": bias[3] = 100
    model.blocks[1].gate.bias = nn.Parameter(bias, requires_grad=False)
else:
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
run = plumbline.init(run="pace", record="runs")
run.watch(model, optimizer)
teacher, data = torch.randn(16, 1, generator=torch.Generator().manual_seed(1)), torch.Generator().manual_seed(0)
for step in range(steps):
    now[0] += step_ms * 1_000_000
    if routed:
        ids = torch.randint(0, 64, (8, 17), generator=data)
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    else:
        x = torch.randn(32, 16, generator=data)
        loss = (model(x) - x @ teacher - 0.3 * torch.randn(32, 1, generator=data)).pow(2).mean()
        if fault == "vanish" and step >= 200: loss = loss * 1e-12 + loss.detach() * (1 - 1e-12)
    loss.backward(); optimizer.step(); optimizer.zero_grad()
run.finish()
"""


def rules(directory, fault, step_ms, steps=300):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    env["PYTHONPATH"] = f"{os.environ['PYTHONPATH']}:{pathlib.Path(__file__).parent}"
    warm.run(["-c", TRAINER, fault, step_ms, steps], directory, env).check_returncode()
    done = subprocess.run([PLUMB, "audit", "runs", "--format", "json", "--quiet"], cwd=directory, capture_output=True, text=True, check=False)
    return {f["rule"] for f in json.loads(done.stdout)["findings"] if f["level"] != "note"}


@pytest.mark.parametrize("step_ms", PACES)
@pytest.mark.parametrize("fault, rule, steps", [("dead", "health/dead-expert", 300), ("collapsed", "health/expert-imbalance", 300),
                                                ("vanish", "health/gradient-vanish", 400)])  # fmt: skip
def test_a_fault_of_a_short_run_is_found_at_any_pace(tmp_path, fault, rule, steps, step_ms):
    assert rule in rules(tmp_path, fault, step_ms, steps)


@pytest.mark.parametrize("step_ms", PACES)
@pytest.mark.parametrize("kind", ["balanced", "falls"] if LONG else ["falls"])
def test_a_healthy_short_run_is_silent_at_any_pace(tmp_path, kind, step_ms):
    assert rules(tmp_path, kind, step_ms) <= {"health/expert-imbalance"}  # this router does not balance the loads
