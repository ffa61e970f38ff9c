"""The line of the trainer that first reported a series or a tensor is in the record, and in findings."""

import _thread
import json
import os
import pathlib
import queue
import subprocess

import pytest
import warm

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
pytestmark = pytest.mark.skipif(not (BUILD / "lib" / "libplumbline_agent.so").exists(), reason="the agent is not built")

TRAINER = """import sys, torch, plumbline
torch.manual_seed(0); torch.set_num_threads(1)
run = plumbline.init(run="r", record=sys.argv[1], strict=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run.watch(model, optimizer)
for step in range(30):
    loss = model(torch.randn(4, 8)).square().mean() * (float("nan") if step == 20 else 1)
    loss.backward()
    run.scalar(
        "val_loss", 1 / (step + 1) if step < 25 else float("inf"))
    optimizer.step()
    optimizer.zero_grad()
run.finish()
"""


def test_findings_name_the_trainers_line_and_not_that_of_a_library(tmp_path):
    script = tmp_path / "train <b>x.py"
    script.write_text(TRAINER)
    subprocess.run([warm.python(), str(script), str(tmp_path / "r")], check=True, timeout=300)
    done = subprocess.run([BUILD / "bin/plumb", "audit", "--format", "json", tmp_path / "r"], capture_output=True, text=True, timeout=120)
    sites = {(f["rule"], f["site"]["op"]): f["site"] for f in json.loads(done.stdout)["findings"]}
    loss = sites[("health/loss-non-finite", "loss")]
    assert loss["file"] == str(script) and loss["line"] in (9, 12), loss
    series = sites[("health/loss-non-finite", "val_loss")]
    assert series["file"] == str(script) and series["line"] in (10, 11), series
    weights = [site for (rule, _), site in sites.items() if rule == "precision/non-finite"]
    assert weights and all(site["file"] == str(script) and site["line"] in (9, 12) for site in weights), sites
    text = subprocess.run([BUILD / "bin/plumb", "audit", "-v", tmp_path / "r"], capture_output=True, text=True, timeout=120).stdout
    assert f"in {script}:{loss['line']}" in text.replace("\n             ", "")


def test_a_site_of_the_backward_pass_has_the_line_that_calls_backward(tmp_path):
    # Between the hook and the trainer are frames of torch and, again, of this package.
    script = tmp_path / "train.py"
    script.write_text(TRAINER.replace(' * (float("nan") if step == 20 else 1)', "").replace("    optimizer.zero_grad()\n", "").replace(
        "Linear(8, 1)", "Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))").replace('record=sys.argv[1]', 'record=sys.argv[1], budget=1'))  # fmt: skip
    subprocess.run([warm.python(), str(script), str(tmp_path / "r")], check=True, timeout=300)
    done = subprocess.run([BUILD / "bin/plumb", "audit", "--format", "json", tmp_path / "r"], capture_output=True, text=True, timeout=120)
    stale = [f["site"] for f in json.loads(done.stdout)["findings"] if f["rule"] == "precision/stale-gradient"]
    assert stale and all((site["file"], site["line"]) == (str(script), 9) for site in stale), stale


def test_a_thread_without_a_frame_of_the_trainer_has_no_line():
    from plumbline import _mistakes

    code = compile("def hook():\n    seen.put(lines())\n", os.path.join(_mistakes._HERE, "hook.py"), "exec")
    exec(code, space := {"lines": _mistakes.trainers_line, "seen": (seen := queue.SimpleQueue())})
    _thread.start_new_thread(space["hook"], ())
    assert seen.get(timeout=60) == (b"", 0)
    space["hook"]()
    assert seen.get(timeout=60)[0].decode().endswith("lines_test.py"), "the next frame is the trainer's"


def test_the_line_is_bounded_and_there_may_be_none():
    from plumbline._mistakes import trainers_line

    file, line = trainers_line()
    assert file.decode().endswith("lines_test.py") and line > 0
    found = {}
    exec(compile("def call(): found.append(trainers_line())", "x" * 1000 + "é.py", "exec"), {"trainers_line": trainers_line, "found": (seen := [])}, found)
    found["call"]()
    assert len(seen[0][0]) == 256 and seen[0] == (("x" * 251 + "é.py").encode()[-256:], 1)
