"""run.watch and the rules of a run's pulse: each fault planted in a small trainer with the two lines is named where it begins."""

import json
import os
import pathlib
import subprocess

import pytest
import warm

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
PLUMB = BUILD / "bin" / "plumb"
pytestmark = pytest.mark.skipif(not (BUILD / "lib" / "libplumbline_agent.so").exists(), reason="the agent is not built")
AT = 200  # the step in which a fault begins

# A regression with label noise: the loss falls, then stays level with the noise of its batches.
TRAINER = """
import sys, torch, plumbline
from torch import nn
fault, seed, steps, begin = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(seed); torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
rate = {"tiny-rate": 1e-9, "replaced": 1.0}.get(fault, 1e-3)
optimizer = torch.optim.Adam(model.parameters(), lr=rate)
warm_up = 0 if begin else 20
if begin:  # all that was saved but the schedule
    held = torch.load("saved.pt")
    model.load_state_dict(held["model"]); optimizer.load_state_dict(held["optimizer"])
    for group in optimizer.param_groups: group["lr"] = rate; group["initial_lr"] = rate
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: (min(1, (i + 1) / warm_up) if warm_up else 1) * 0.995 ** i)

class Scaler:  # torch's own needs a GPU; this one is asked for the same things
    _scale = torch.tensor(65536.0)
    def is_enabled(self): return True
    def get_scale(self): return float(self._scale)
scaler = Scaler() if fault in ("scale-storm", "scale-steady") else None

run = plumbline.init(run="pulse", record="runs", every=1)
run.watch(model, optimizer, **({"scaler": scaler} if scaler else {}))
teacher = torch.randn(16, 1, generator=torch.Generator().manual_seed(1))
data = torch.Generator().manual_seed(seed)
for i in range(begin, begin + steps):
    broken = i >= 200
    x = torch.randn(64, 16, generator=data)
    y = x @ teacher + 0.3 * torch.randn(64, 1, generator=data)
    if fault == "bad-batch" and 200 <= i < 203: y = 30 * y.flip(0)
    if fault == "other-data" and broken: y = -y
    if fault == "explode" and broken:
        for group in optimizer.param_groups: group["lr"] = 3.0
    if fault == "no-rate" and broken:
        for group in optimizer.param_groups: group["lr"] = 0.0
    if fault == "dead" and i == 200:
        with torch.no_grad(): model[2].bias.fill_(-1e3)
    loss = (model(x) - y).pow(2).mean()
    if fault == "detached" and broken: loss = loss * 0 + loss.detach()
    if fault == "vanish" and broken: loss = loss * 1e-12 + loss.detach() * (1 - 1e-12)
    optimizer.zero_grad()
    if scaler is None:
        loss.backward(); optimizer.step()
    else:
        if fault == "scale-storm" and broken and i % 10 == 0: scaler._scale = scaler._scale / 2
        (loss * scaler._scale).backward()
        for p in model.parameters(): p.grad /= scaler._scale
        if not (fault == "scale-storm" and broken and i % 10 == 0): optimizer.step()
    if fault == "replaced":
        with torch.no_grad():
            for p in model.parameters(): p.copy_(0.03 * torch.randn_like(p))
    schedule.step()
    if i == 399: torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "saved.pt")
run.finish()
"""


def train(directory, fault, seed, steps=500, begin=0):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    warm.run(["-c", TRAINER, fault, seed, steps, begin], directory, env).check_returncode()


def findings(directory):
    done = subprocess.run([PLUMB, "audit", "runs", "--format", "json", "--quiet"], cwd=directory, capture_output=True, text=True, check=False)  # fmt: skip
    return [f for f in json.loads(done.stdout)["findings"] if f["level"] != "note"]


# fault, the rule that must report it, the most steps until then, other rules that may report it
FAULTS = [
    ("bad-batch", "health/loss-spike", 3, {"health/gradient-spike"}),
    ("other-data", "health/loss-spike", 3, {"health/gradient-spike", "health/loss-divergence"}),
    ("explode", "health/loss-divergence", 3, {"health/gradient-spike", "health/loss-spike", "health/update-ratio", "health/all-zero", "health/learning-rate"}),
    ("no-rate", "health/learning-rate", 3, {"health/unchanged-tensor", "precision/lost-update"}),
    ("dead", "health/all-zero", 20, {"health/loss-spike", "health/loss-divergence", "health/update-ratio", "health/gradient-spike", "health/unchanged-tensor"}),
    ("detached", "health/all-zero", 20, {"health/gradient-vanish", "health/unchanged-tensor"}),
    ("vanish", "health/gradient-vanish", 20, set()),
    ("scale-storm", "health/loss-scale", 100, set()),
    ("tiny-rate", "health/update-ratio", 500, {"precision/lost-update", "health/loss-stall", "health/unchanged-tensor"}),
    ("replaced", "health/update-ratio", 500, {"health/loss-stall"}),
]  # fmt: skip
SEEDS = range(5 if os.environ.get("PLUMB_LONG") else 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault, rule, within, others", FAULTS, ids=[f[0] for f in FAULTS])
def test_the_fault_is_named_where_it_begins(tmp_path, fault, rule, within, others, seed):
    train(tmp_path, fault, seed)
    found = findings(tmp_path)
    rules = {f["rule"] for f in found}
    print(sorted((f["rule"], f["site"].get("layer"), f["site"].get("op"), f["site"]["step_first"], f["title"]) for f in found))
    assert rule in rules and rules <= {rule, *others}
    first = min(f["site"]["step_first"] for f in found if f["rule"] == rule)
    assert within == 500 or AT <= first <= AT + within


def test_a_rate_that_a_resume_restarted_is_reported(tmp_path):
    train(tmp_path, "none", 0)
    assert findings(tmp_path) == []
    train(tmp_path, "none", 0, steps=200, begin=400)
    found = findings(tmp_path)
    # The step comes from the optimizer's state; the trainer does not pass it.
    assert [(f["rule"], f["site"]["step_first"]) for f in found if f["rule"] == "health/learning-rate"] == [("health/learning-rate", 400)]
    assert {f["rule"] for f in found} <= {"health/learning-rate", "health/loss-spike"}


@pytest.mark.parametrize("seed", range(20 if os.environ.get("PLUMB_LONG") else 2))
@pytest.mark.parametrize("kind", ["none", "scale-steady"])
def test_a_healthy_run_is_silent(tmp_path, kind, seed):
    train(tmp_path, kind, 100 + seed)
    assert findings(tmp_path) == []
