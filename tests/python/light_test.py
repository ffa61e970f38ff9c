"""Steps that run.watch records only by stores: their content, the events that end such steps, and that the trainer's results do not change."""

import json
import os
import pathlib
import subprocess
import sys

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
x, y, light, reported = torch.randn(16, 32), torch.randint(0, 8, (16,)), 0, {"loss": [], "lr": [], "norm": []}
run = watch = None
if record != "none":
    run = plumbline.init(run="light", record=record, strict=True, budget=float(sys.argv[4]))
    watch = run.watch(model, optimizer)
for step in range(300):
    if run and kind == "explicit": run.begin_step(step)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    if step == bad: loss = loss * float("nan")
    if kind in ("micro", "stale"):  # three passes before the last one
        for part in range(3):
            (loss / 4).backward(retain_graph=True)
        loss = loss / 4
    torch.autograd.backward(loss) if kind == "autograd" and step % 50 == 20 else loss.backward()
    if kind == "wrapped" and step == 130:  # another library puts its own function around backward, in a light step
        inner = torch.Tensor.backward
        torch.Tensor.backward = lambda self, *given: inner(self, *given)
    if run and kind == "scalar" and step in (77, 150): run.scalar("accuracy", step / 300)
    if kind == "clip": reported["norm"].append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
    if kind == "twice" and step == 120:  # a pass whose gradients are cleared is none of a step
        optimizer.zero_grad(); loss = torch.nn.functional.cross_entropy(model(x), y); loss.backward()
    reported["loss"].append(loss.item()); reported["lr"].append(optimizer.param_groups[0]["lr"])
    light += bool(watch and watch.light)
    optimizer.step(None) if kind == "none" else optimizer.step()
    schedule.step()
    if run and kind == "explicit": run.end_step()
    if kind != "stale" or step < 100: optimizer.zero_grad()
if run and not run.finish(): sys.exit("finish() is false")
weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
print(json.dumps({"light": light, "weights": weights, **reported}))
"""


def trained(kind, record, bad=-1, budget=0.01):
    done = subprocess.run([warm.python(), "-c", TRAINER, kind, str(record), str(bad), str(budget)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def audited(record, *options):
    done = subprocess.run([PLUMB, "audit", "--format", "json", *options, record], capture_output=True, text=True, timeout=120)
    return json.loads(done.stdout)


def evidence_of(record):
    """Returns the items of evidence, in their order."""
    done = subprocess.run([BUILD / "bin/agent_record_json", *record.iterdir()], capture_output=True, text=True, check=True)
    return [json.loads(line).get("evidence", {}) for line in done.stdout.splitlines()]


def series_of(record):
    """Returns {series: {step: value}}."""
    seen = {}
    for one in evidence_of(record):
        if "scalar" in one:
            seen.setdefault(one["site"]["op"], {})[int(one.get("step", 0))] = one["scalar"].get("value", 0)
    return seen


@pytest.mark.parametrize("kind", ["plain", "explicit", "clip", "scalar", "twice", "autograd", "wrapped", "none", "micro"])
def test_a_trainer_computes_the_same_and_a_healthy_one_is_silent(tmp_path, kind):
    plain, watched = trained(kind, "none"), trained(kind, tmp_path / "r")
    assert plain["weights"] == watched["weights"] and plain["loss"] == watched["loss"]
    least = {"scalar": 60, "autograd": 60, "wrapped": 90}.get(kind, 200)
    assert watched["light"] > least, "most steps are light"
    report = audited(tmp_path / "r")
    assert [f["rule"] for f in report["findings"] if f["level"] != "note"] == []
    assert all(not one["problems"] for one in report["inputs"])


@pytest.mark.parametrize("kind", ["clip", "none", "micro"])
def test_the_series_of_light_steps_are_those_of_whole_steps_to_the_bit(tmp_path, kind):
    light, whole = trained(kind, tmp_path / "light"), trained(kind, tmp_path / "whole", budget=1)
    assert light["light"] > 200 and whole["light"] == 0 and light["weights"] == whole["weights"]
    light, whole = series_of(tmp_path / "light"), series_of(tmp_path / "whole")
    for name in ("loss", "lr"):
        assert light[name] == whole[name] and len(whole[name]) == 300, name
    norms = light["grad_norm"]
    assert norms and (kind != "clip" or len(norms) == 300)
    assert {step: whole["grad_norm"].get(step) for step in norms} == norms


@pytest.mark.parametrize("kind", ["plain", "explicit", "clip", "none", "micro"])
def test_a_loss_that_is_nan_is_found_at_its_step(tmp_path, kind):
    watched = trained(kind, tmp_path / "r", bad=237)
    assert watched["light"] > 150
    found = {(f["rule"], f["site"]["step_first"]) for f in audited(tmp_path / "r")["findings"] if f["level"] == "error"}
    assert ("health/loss-non-finite", 237) in found and {step for _, step in found} == {237}


def test_gradients_that_are_no_longer_cleared_are_found_between_light_steps_of_several_passes(tmp_path):
    assert trained("stale", tmp_path / "r")["light"] > 100
    found = {(f["rule"], f["level"]): f["site"]["step_first"] for f in audited(tmp_path / "r")["findings"]}
    assert found[("precision/stale-gradient", "error")] >= 100


def test_an_evaluation_between_light_steps_is_reported(tmp_path):
    code = TRAINER.replace("    light += bool", """
    if watch and watch.light and not reported.get("evaluated"):
        begun, plain = [], watch.stages.begin
        watch.stages.begin = lambda kind, name=None: (begun.append(kind), plain(kind, name))
        model.eval()
        with torch.no_grad(): model(x)
        model.train()
        watch.stages.begin, reported["evaluated"] = plain, begun
    light += bool""", 1)
    done = subprocess.run([warm.python(), "-c", code, "plain", str(tmp_path / "r"), "-1", "0.01"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["evaluated"] == ["evaluation"]
    assert [f["rule"] for f in audited(tmp_path / "r")["findings"] if f["level"] != "note"] == []


def test_no_step_is_overwritten_before_the_agent_has_read_it(tmp_path):
    code = TRAINER.replace("range(300)", "range(3000)").replace("run = watch = None", """run = watch = None
from plumbline._watching import ring as of
def unread(self):  # as on a busy machine: the agent reads nothing
    memory = memoryview(bytearray(8 * (of._HEAD + of._WORDS * of._STEPS)))
    self._words, self._values = memory.cast("Q"), memory.cast("d")
    return True
of.Ring._map = unread""", 1).replace("if run and not run.finish()", "reported['written'] = watch._light._ring.written\nif run and not run.finish()", 1)
    done = subprocess.run([warm.python(), "-c", code, "plain", str(tmp_path / "r"), "-1", "0.01"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert 900 < json.loads(done.stdout)["written"] <= 1024


IDS = """
import copy, io, json, sys, torch, plumbline
torch.manual_seed(0); torch.set_num_threads(1)
class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = torch.nn.Embedding(50, 32), torch.nn.Linear(32, 50)
    def forward(self, ids):
        return self.out(self.table(ids))
model, plain = Words(), (Words.forward, torch.Tensor.backward, torch.autograd.backward)
optimizer = torch.optim.AdamW([{"params": model.table.parameters(), "lr": 1e-3}, {"params": model.out.parameters(), "lr": 2e-3}])
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 1 / (1 + s / 100))
run = plumbline.init(run="light", record=sys.argv[1], strict=True)
watch = run.watch(model, optimizer)
given, light = {name: [] for name in ("loss", "grad_norm", "lr", "lr.1", "tokens")}, []
for step in range(300):
    ids = torch.randint(0, 50, (4, 8 + step % 5))
    loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    if watch.light:
        assert not model._forward_pre_hooks and Words.forward is not plain[0], "a hook would take torch's long way"
        if step % 3 == 0:
            other = copy.deepcopy(model)
            other(ids), other.state_dict(), torch.save(other.state_dict(), io.BytesIO())
    given["grad_norm"].append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
    given["loss"].append(loss.item()); given["tokens"].append(ids.numel())
    for number, name in enumerate(("lr", "lr.1")): given[name].append(optimizer.param_groups[number]["lr"])
    light += [step] if watch.light else []
    optimizer.step(); optimizer.zero_grad(); schedule.step()
    assert run._following() == step + 1
watch.remove()
assert (Words.forward, torch.Tensor.backward, torch.autograd.backward) == plain and not model._forward_pre_hooks
assert run.finish()
print(json.dumps({"light": light, "series": given}))
"""


def test_the_record_of_light_steps_is_what_the_trainer_computed(tmp_path):
    done = subprocess.run([sys.executable, "-c", IDS, str(tmp_path / "r")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["light"]) > 200
    seen = series_of(tmp_path / "r")
    for name, values in answer["series"].items():
        steps = answer["light"] if name != "grad_norm" else [step for step in answer["light"] if step in seen[name]]
        assert len(steps) > 150 and all(seen[name][step] == pytest.approx(values[step], rel=1e-6) for step in steps), name
    assert sorted(seen["loss"]) == list(range(300))


SCREENED = """
import json, math, sys, torch, plumbline
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
run = plumbline.init(run="light", record=sys.argv[1], strict=True)
watch = run.watch(model, optimizer)
x, y, norms, ratios, bad = torch.randn(16, 32), torch.randint(0, 8, (16,)), {}, {}, None
weights = [p for p in model.parameters() if p.dim() > 1]
for step in range(300):
    torch.nn.functional.cross_entropy(model(x), y).backward()
    screened = watch.light is not None and len(watch.light.rows) == watch.light.at
    if screened and sys.argv[2] == "bad" and bad is None:
        bad, model[0].bias.grad[3] = step, float(sys.argv[3])
    elif screened:
        norms[step] = math.sqrt(sum(float(p.grad.double().pow(2).sum()) for p in model.parameters()))
        before = [p.detach().clone() for p in weights]
    optimizer.step()
    if screened and step in norms:
        moved = sum(float((p.detach() - b).double().pow(2).sum()) for p, b in zip(weights, before))
        ratios[step] = math.sqrt(moved / sum(float(b.double().pow(2).sum()) for b in before))
    if step == bad:
        assert watch.light is None, "the step is a whole one"
        break
    optimizer.zero_grad()
assert run.finish()
print(json.dumps({"grad_norm": norms, "update_ratio": ratios, "bad": bad}))
"""


def screened(record, *arguments):
    done = subprocess.run([warm.python(), "-c", SCREENED, str(record), *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), evidence_of(record)


def test_a_light_step_that_is_screened_has_the_norm_and_the_movement(tmp_path):
    answer, items = screened(tmp_path / "r", "healthy")
    for name in ("grad_norm", "update_ratio"):
        seen = {one.get("step", "0"): one["scalar"]["value"] for one in items if "scalar" in one and one["site"]["op"] == name}
        assert answer[name] and all(seen[step] == pytest.approx(value, rel=0.3 if name == "update_ratio" else 1e-5)
                                              for step, value in answer[name].items())  # fmt: skip


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_gradient_that_is_notable_in_a_light_step_is_looked_at_in_it(tmp_path, value):
    answer, items = screened(tmp_path / "r", "bad", value)
    looked = {(one["site"].get("layer"), one.get("step", "0")) for one in items if "tensor" in one and one["tensor"].get("role") == "gradient"}
    assert answer["bad"] and ("0.bias", str(answer["bad"])) in looked
