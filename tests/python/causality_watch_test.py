"""run.watch(causality="first-step") checks a copy, once, and changes no bit; `doctor --model` runs the check."""

import os
import pathlib
import subprocess
import sys

import pytest

TRAINER = """
import hashlib, sys
import torch
import plumbline
from causality_parts import Attention, BatchNorm, Model
record, causality, leak = sys.argv[1:4]
torch.manual_seed(3)
model = Model([Attention(16, leak="off-by-one" if leak == "leak" else None, rate=0.1)], rate=0.1)
if leak == "broken":
    model.hook = lambda: model  # part of the module's state
    model.own = open(__file__)  # cannot be copied
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
run = None
if record != "none":
    run = plumbline.init(run="r", record=record, every=1)
    watched = run.watch(model, optimizer, **({"causality": causality} if causality != "off" else {}))
batches, digest = torch.Generator().manual_seed(4), hashlib.sha256()
for step in range(6):
    tokens = torch.randint(0, 29, (8, 20), generator=batches)
    logits = model(tokens)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    digest.update(loss.detach().numpy().tobytes())
for p in model.parameters():
    digest.update(p.detach().numpy().tobytes())
digest.update(torch.get_rng_state().numpy().tobytes())
print("digest", digest.hexdigest())
if run is not None:
    assert run.finish()
    verdict = getattr(watched, "causality", None)
    print("verdict", verdict and verdict.verdict and verdict.verdict.verdict)
"""


def train(folder, record, causality, leak):
    script = folder / "trainer.py"
    script.write_text(TRAINER)
    env = {**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{pathlib.Path(__file__).parent}"}
    done = subprocess.run([sys.executable, script, str(record), causality, leak], env=env, capture_output=True, text=True, timeout=250, cwd=folder)
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines()), done.stderr


@pytest.mark.parametrize("leak, verdict", [("clean", "passed"), ("leak", "finding")])
def test_the_first_step_is_checked_and_no_bit_changes(tmp_path, leak, verdict):
    plain, _ = train(tmp_path, "none", "off", leak)
    off, quiet = train(tmp_path, tmp_path / "off", "off", leak)
    checked, errors = train(tmp_path, tmp_path / "on", "first-step", leak)
    assert plain["digest"] == off["digest"] == checked["digest"]
    assert checked["verdict"] == verdict and off["verdict"] == "None" and "causality" not in quiet
    assert errors.count("plumbline: causality: ") == 1 and f"plumbline: causality: {verdict}" in errors
    assert ("blocks.0.mixer" in errors) == (leak == "leak")


def test_what_cannot_be_copied_is_not_checked(tmp_path):
    checked, errors = train(tmp_path, tmp_path / "on", "first-step", "broken")
    assert checked["verdict"] == "None" and "plumbline: causality: not checked: the model cannot be copied: TypeError" in errors


def test_other_words_are_a_mistake(tmp_path):
    checked, errors = train(tmp_path, tmp_path / "on", "each-step", "clean")
    assert "causality is 'each-step'; expected 'first-step'" in errors


SHOP = """
import torch
from causality_parts import Attention, Model
class ShopForCausalLM(Model):
    pass
def make(leak, kind=Model):
    torch.manual_seed(0)
    model = kind([Attention(16), Attention(16, leak=leak)])
    return model, torch.optim.AdamW(model.parameters()), (torch.randint(0, 29, (4, 20)),)
good = lambda: make(None)
leaks = lambda: make("off-by-one")
stated = lambda: make("off-by-one", ShopForCausalLM)
"""


@pytest.mark.parametrize("name, status, stated", [
    ("good", 0, "causality    passed (exact): no output row moved"),
    ("leaks", 0, "causality    no fault if the model is meant to see both sides"),
    ("stated", 1, "causality    finding (error, proved): causality/future-influence, cause next-token"),
])  # fmt: skip
def test_doctor_runs_it(tmp_path, name, status, stated):
    (tmp_path / "shop.py").write_text(SHOP)
    env = {**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{pathlib.Path(__file__).parent}"}
    done = subprocess.run([sys.executable, "-m", "plumbline", "doctor", "--model", f"shop:{name}"], cwd=tmp_path, env=env, capture_output=True,
                          text=True, timeout=250)  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    assert stated in done.stdout and ("blocks.1.mixer" in done.stdout) == (name != "good")
