"""Steps that run.watch records by stores alone: what they hold, what ends them, and that the trainer computes the same with them."""

import json
import os
import pathlib
import subprocess

import pytest
import warm

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
PLUMB = BUILD / "bin" / "plumb"
pytestmark = pytest.mark.skipif(not (BUILD / "lib" / "libplumbline_agent.so").exists(), reason="the agent is not built")

# Prints the losses, rates and weights of 300 steps, and how many of them were light.
TRAINER = """
import sys, json, hashlib, torch, plumbline
kind, record, bad = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 1 / (1 + s / 100))
x, y, light, told = torch.randn(16, 32), torch.randint(0, 8, (16,)), 0, {"loss": [], "lr": [], "norm": []}
run = watch = None
if record != "none":
    run = plumbline.init(run="light", record=record, strict=True)
    watch = run.watch(model, optimizer)
for step in range(300):
    if run and kind == "explicit": run.begin_step(step)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    if step == bad: loss = loss * float("nan")
    torch.autograd.backward(loss) if kind == "autograd" and step % 50 == 20 else loss.backward()
    if kind == "wrapped" and step == 130:  # another library puts its own function around backward, in a light step
        inner = torch.Tensor.backward
        torch.Tensor.backward = lambda self, *given: inner(self, *given)
    if run and kind == "scalar" and step in (77, 150): run.scalar("accuracy", step / 300)
    if kind == "clip": told["norm"].append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
    if kind == "twice" and step == 120:  # a pass whose gradients are cleared is none of a step
        optimizer.zero_grad(); loss = torch.nn.functional.cross_entropy(model(x), y); loss.backward()
    told["loss"].append(loss.item()); told["lr"].append(optimizer.param_groups[0]["lr"])
    light += bool(watch and watch.light)
    optimizer.step(); schedule.step()
    if run and kind == "explicit": run.end_step()
    optimizer.zero_grad()
if run and not run.finish(): sys.exit("finish() is false")
weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
print(json.dumps({"light": light, "weights": weights, **told}))
"""


def trained(kind, record, bad=-1):
    done = subprocess.run([warm.python(), "-c", TRAINER, kind, str(record), str(bad)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def audited(record, *options):
    done = subprocess.run([PLUMB, "audit", "--format", "json", *options, record], capture_output=True, text=True, timeout=120)
    return json.loads(done.stdout)




@pytest.mark.parametrize("kind", ["plain", "explicit", "clip", "scalar", "twice", "autograd", "wrapped"])
def test_a_trainer_computes_the_same_and_a_healthy_one_is_silent(tmp_path, kind):
    plain, watched = trained(kind, "none"), trained(kind, tmp_path / "r")
    assert plain["weights"] == watched["weights"] and plain["loss"] == watched["loss"]
    least = {"scalar": 60, "autograd": 60, "wrapped": 90}.get(kind, 200)
    assert watched["light"] > least, "most steps are light"
    report = audited(tmp_path / "r")
    assert [f["rule"] for f in report["findings"] if f["level"] != "note"] == []
    assert all(not one["problems"] for one in report["inputs"])


@pytest.mark.parametrize("kind", ["plain", "explicit", "clip"])
def test_a_loss_that_is_nan_is_found_at_its_step(tmp_path, kind):
    watched = trained(kind, tmp_path / "r", bad=237)
    assert watched["light"] > 150
    found = {(f["rule"], f["site"]["step_first"]) for f in audited(tmp_path / "r")["findings"] if f["level"] == "error"}
    assert ("health/loss-non-finite", 237) in found and {step for _, step in found} == {237}


def test_an_evaluation_between_light_steps_is_reported(tmp_path):
    code = TRAINER.replace("    light += bool", """
    if watch and watch.light and not told.get("evaluated"):
        begun, plain = [], watch.stages.begin
        watch.stages.begin = lambda kind, name=None: (begun.append(kind), plain(kind, name))
        model.eval()
        with torch.no_grad(): model(x)
        model.train()
        watch.stages.begin, told["evaluated"] = plain, begun
    light += bool""", 1)
    done = subprocess.run([warm.python(), "-c", code, "plain", str(tmp_path / "r"), "-1"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["evaluated"] == ["evaluation"]
    assert [f["rule"] for f in audited(tmp_path / "r")["findings"] if f["level"] != "note"] == []
