"""precision/ema-stall in a run of 300 steps at default settings: the elements that the rule needs add up over several looks."""

import json
import os
import pathlib
import subprocess

import pytest
import warm

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
PLUMB = BUILD / "bin" / "plumb"
LONG = bool(os.environ.get("PLUMB_LONG"))
pytestmark = pytest.mark.skipif(not (BUILD / "lib" / "libplumbline_agent.so").exists(), reason="the agent is not built")

# Keeps an average of each weight in the given dtype and with the given decay, in addition to the two lines.
TRAINER = """
import sys, torch, plumbline
from torch import nn
kind, seed = sys.argv[1], int(sys.argv[2])
torch.manual_seed(seed); torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
run = plumbline.init(run="average", record="runs", budget=1)
run.watch(model, optimizer)
decay = {"quick": 0.5}.get(kind, 0.999)
dtype = torch.float32 if kind in ("fp32", "rarely") else torch.bfloat16
averages = {name: p.detach().to(dtype) for name, p in model.named_parameters()}
for i in range(300):
    x = torch.randn(64, 16)
    (model(x) - x.sum(1, keepdim=True) - 0.3 * torch.randn(64, 1)).pow(2).mean().backward()
    with run.step(i):
        optimizer.step(); optimizer.zero_grad()
        for name, p in model.named_parameters():
            before = averages[name]
            meant = (1 - decay) * (p.detach().float() - before.float())
            if kind == "rarely" and i % 4: after = before.clone()  # not updated in every step
            else: after = (before.float() + meant).to(dtype)
            run.observe_update("average." + name, before, after, meant, optimizer="ema", decay=decay)
            averages[name] = after
run.finish()
"""


def verdicts(directory, kind, seed):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    warm.run(["-c", TRAINER, kind, seed], directory, env).check_returncode()
    reported = subprocess.run([PLUMB, "audit", "runs", "--format", "json", "--quiet"], cwd=directory, capture_output=True, text=True,
                          check=False)  # fmt: skip
    return json.loads(reported.stdout)


SEEDS = range(20 if LONG else 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_average_that_cannot_move_is_reported(tmp_path, seed):
    report = verdicts(tmp_path, "bf16", seed)
    found = {f["site"]["layer"]: f for f in report["findings"]}
    assert {f["rule"] for f in found.values()} == {"precision/ema-stall"}
    # The two weights with at least 1,000 elements over all steps, a few hundred per look.
    assert {"average.0.weight", "average.2.weight"} <= set(found)
    assert all(f["strength"] == "proved" and f["sample_size"] >= 1000 for f in found.values())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["fp32", "quick", "rarely"])
def test_one_that_follows_is_not(tmp_path, kind, seed):
    report = verdicts(tmp_path, kind, seed)
    assert report["findings"] == []
    reported = {v["reason"].partition(":")[0] for v in report["verdicts"] if v["rule"] == "precision/ema-stall"}
    assert "the average changes" in reported or (kind == "rarely" and "not-rounding" in reported), reported
