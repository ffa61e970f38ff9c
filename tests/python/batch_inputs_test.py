"""Floating inputs of a watched model: those that are far off, constant or not finite are named, healthy kinds are silent.

Each kind draws its batches anew from a seed. PLUMB_LONG=1 takes more seeds."""

import json
import os
import pathlib
import random
import subprocess

import pytest
import torch
import warm
from plumbline._data.inputs import Inputs

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
PLUMB = BUILD / "bin" / "plumb"
SEEDS = range(6 if os.environ.get("PLUMB_LONG") == "1" else 2)

TRAINER = """
import sys, torch, plumbline
import batch_inputs_test as kinds
kind, seed, given = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.manual_seed(seed); torch.set_num_threads(1)
model = kinds.Model(plain=sys.argv[4] == "plain")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
run = plumbline.init(run="inputs", record="runs", **({"every": 1} if given == "every" else {}))
watch = run.watch(model, optimizer)
light = 0
for step, (x, mask) in enumerate(kinds.batches(kind, seed, int(sys.argv[5]))):
    loss = model(pixels=x, mask=mask) if given == "keyword" else model(x, mask)
    light += step == int(sys.argv[5]) and bool(watch.light)
    loss.backward(); optimizer.step(); optimizer.zero_grad()
print(light)
assert run.finish()
"""
# Before torch 2.0 a hook does not get the keywords of a forward pass.
WAYS = ["position", *(["keyword"] if int(torch.__version__.partition(".")[0]) > 1 else [])]
STEPS, BAD = 200, 128  # a step that is looked at


class Model(torch.nn.Module):
    """`plain`: the loss jumps with its inputs. Else no loss shows that they are wrong."""

    def __init__(self, plain):
        super().__init__()
        self.norm, self.out, self.plain = torch.nn.LayerNorm(16), torch.nn.Linear(16, 4), plain

    def forward(self, pixels, mask):
        flat = pixels.flatten(0, -2).reshape(-1, 16)
        flat = flat if self.plain else self.norm(flat.nan_to_num(0, 0, 0))
        return self.out(flat).square().mean() + 0 * mask.nan_to_num(0, 0, 0).sum()


def batches(kind, seed, bad=BAD):
    rng, drawn = random.Random(seed), torch.Generator().manual_seed(seed)
    for step in range(STEPS):
        rows = 4 + rng.randrange(6)
        x = torch.rand(rows, 2, 16, generator=drawn)
        mask = (torch.rand(rows, 16, generator=drawn) < 0.8).float()
        if rng.random() < 0.3:
            mask = torch.ones(rows, 16)
        x = CHANGES[kind](x, BAD if step == bad else BAD + 1 if step > bad else min(step, BAD - 1), rng, drawn)
        yield x, torch.where(mask > 0, 0.0, float("-inf")) if kind == "added mask" else mask


def ruined(x, row, value):
    x = x.clone()
    x[row, 1, 3] = value
    return x


HEALTHY = {
    "plain": lambda x, step, rng, drawn: x,
    "added mask": lambda x, step, rng, drawn: x,
    "first batch": lambda x, step, rng, drawn: 300 * x if step == 0 else x,
    "warm-up of zeros": lambda x, step, rng, drawn: 0 * x if step < 3 else x,
    "noise levels": lambda x, step, rng, drawn: x * float(rng.lognormvariate(-1.2, 1.2)) * 10,
    "curriculum": lambda x, step, rng, drawn: x * 1.02**step,
    "modalities": lambda x, step, rng, drawn: 255 * torch.rand(4, 3, 32, generator=drawn) if step % 16 == 9 else x,
    "two scales": lambda x, step, rng, drawn: 255 * x if step % 2 else x,
    "absent": lambda x, step, rng, drawn: 0 * x if step > 20 and step % 8 == 0 else x,
    "integers": lambda x, step, rng, drawn: (255 * x).round(),
    "standardised": lambda x, step, rng, drawn: torch.randn(x.shape, generator=drawn),
    "padded": lambda x, step, rng, drawn: torch.cat([x, torch.zeros(2, 2, 16)]),
    "sparse": lambda x, step, rng, drawn: x * (torch.rand(x.shape, generator=drawn) < 0.02),
}  # fmt: skip
FAULTS = {
    "one batch times 100": lambda x, step, rng, drawn: 100 * x if step == BAD else x,
    "pixels of 0 to 255": lambda x, step, rng, drawn: 255 * x if step >= BAD else x,
    "divided twice": lambda x, step, rng, drawn: x / 255 if step >= BAD else x,
    "constant rows": lambda x, step, rng, drawn: torch.full(x.shape, 0.5) if step == BAD else x,
    "nan": lambda x, step, rng, drawn: ruined(x, 1, float("nan")) if step == BAD else x,
    "infinite": lambda x, step, rng, drawn: ruined(x, 1, float("inf")) if step == BAD else x,
}
CHANGES = {**HEALTHY, **FAULTS}


def found(folder, kind, seed, given, model="normed", bad=BAD, light=False):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    env["PYTHONPATH"] = f"{os.environ['PYTHONPATH']}:{pathlib.Path(__file__).parent}"
    env["PLUMBLINE_BUILD_DIR"] = str(BUILD)
    done = warm.run(["-c", TRAINER, kind, seed, given, model, bad], folder, env)
    assert done.returncode == 0, done.stderr
    assert not light or done.stdout.strip() == "1", "the step was to begin as a light one"
    assert "plumbline: watch:" not in done.stderr, done.stderr
    report = json.loads(subprocess.run([PLUMB, "audit", "runs", "--format", "json", "--quiet"], cwd=folder, capture_output=True, text=True).stdout)
    return [f for f in report["findings"] if f["rule"] == "health/batch-facts"]


@pytest.mark.skipif(not PLUMB.exists(), reason="plumb is not built")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_inputs_are_silent(tmp_path, kind, seed):
    assert found(tmp_path, kind, seed, ("every", "keyword", "position")[seed % 3]) == []


def check(one, kind, step):
    if kind not in ("nan", "infinite"):
        assert one["level"] == "warning" and ("argument 0[" in one["explanation"] or "pixels[" in one["explanation"])
        assert f"step {step}" in one["explanation"]


@pytest.mark.skipif(not PLUMB.exists(), reason="plumb is not built")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", FAULTS)
def test_what_is_wrong_is_named(tmp_path, kind, seed):
    (one,) = found(tmp_path, kind, seed, "every")
    assert one["site"]["step_first"] == BAD
    check(one, kind, BAD)


@pytest.mark.skipif(not PLUMB.exists(), reason="plumb is not built")
@pytest.mark.parametrize("given", WAYS)
@pytest.mark.parametrize("kind", ["pixels of 0 to 255", "divided twice"])
def test_what_stays_wrong_is_found_between_light_steps(tmp_path, kind, given):
    (one,) = found(tmp_path, kind, 5, given, bad=40)
    assert 40 <= one["site"]["step_first"] < STEPS
    check(one, kind, one["site"]["step_first"])


@pytest.mark.skipif(not PLUMB.exists(), reason="plumb is not built")
@pytest.mark.parametrize("given", WAYS)
@pytest.mark.parametrize("kind", ["one batch times 100", "nan"])
def test_one_batch_that_moves_the_loss_is_found_in_a_light_step(tmp_path, kind, given):
    (one,) = found(tmp_path, kind, 6, given, model="plain", bad=150, light=True)
    assert one["site"]["step_first"] == 150
    check(one, kind, 150)


def facts(*inputs, of=None, **words):
    with torch.no_grad():
        return (of or Inputs()).facts(inputs, words)


def test_the_scale_is_the_root_of_the_mean_square():
    x = torch.randn(4, 3, 16)
    (scales, constants, lost) = facts(x, pixels=x.half())
    assert scales["argument 0[*,*,16]"] == pytest.approx(float(x.square().mean()) ** 0.5, rel=1e-5)
    assert scales["pixels[*,*,16]"] == pytest.approx(scales["argument 0[*,*,16]"], rel=1e-2)
    assert constants == {} and lost == 0


def test_masks_targets_integers_and_vectors_are_no_inputs():
    mask = (torch.rand(4, 16) < 0.5).float()
    added = torch.where(mask > 0, 0.0, float("-inf"))
    words = {"attention_mask": added, "position_bias": added, "labels": torch.randn(4, 16), "timesteps": torch.rand(4)}
    assert facts(mask, added, torch.randint(0, 9, (4, 16)), torch.randn(4, 16, dtype=torch.complex64), **words) == ({}, {}, 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["features", "labels"])
def test_elements_that_are_not_finite_are_counted(name, value):
    x = torch.randn(4, 16)
    x[1, 2] = x[3, 5] = value
    assert facts(**{name: x}) == ({}, {}, 2)


def test_large_finite_values_are_none():
    assert facts(torch.full((4, 16), 3e38) * torch.rand(4, 16))[2] == 0


def test_constant_rows_count_only_after_batches_that_vary():
    of, x, same = Inputs(), torch.rand(4, 16), torch.full((4, 16), 0.5)
    assert facts(same, of=of)[1] == {} and facts(x, of=of)[1] == {} and facts(same, of=of)[1] == {}, "it was constant before"
    of = Inputs()
    facts(x, of=of)
    assert facts(0 * x, of=of) == ({}, {}, 0), "zeros may represent an input that is absent"
    assert facts(same[:2], of=of)[1] == {}, "two rows may be equal by chance"
    of = Inputs()
    facts(x, of=of)
    assert facts(same, of=of)[1] == {"argument 0[*,16]": 4}
