"""The functions of docs/rl.md for other frameworks, on batches with the names and shapes that these have: the frameworks do not run here."""

import json
import pathlib
import re
import subprocess

import pytest
import trainer
from endings import BIN, PATIENCE

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "rl.md"

WORLD = """
import types, torch, plumbline
STEPS, ROWS, PROMPT, N = 6, 16, 5, 24
sampler = types.SimpleNamespace(temperature=1.0, top_p=1.0, top_k=-1)

def draw(shifted):
    # Both sides' values of one batch: columns [ROWS, N], the last three tokens of each row are padding.
    p = torch.rand(ROWS, N) * 0.6 + 0.2
    first = torch.rand(ROWS, N) < p
    q = p * (torch.randn(ROWS, N) * 0.01).exp()
    engine, train = torch.where(first, p, 1 - p).log(), torch.where(first, q, 1 - q).log()
    mask = torch.ones(ROWS, N, dtype=torch.long)
    mask[:, -3:] = 0
    train = train.roll(1, 1) if shifted else train
    return torch.randint(3, 900, (ROWS, N)), torch.where(mask > 0, engine, 0.0), torch.where(mask > 0, train, -9.0), mask

def pad(column, value):
    return torch.cat((torch.full((ROWS, PROMPT), value, dtype=column.dtype), column), 1)

def verl(run, step, ids, engine, train, mask):
    batch = {"responses": ids, "rollout_log_probs": engine, "old_log_probs": train, "response_mask": mask}
    observe_verl(run, types.SimpleNamespace(batch=batch), step, sampler)

def slime(run, step, ids, engine, train, mask):
    data = {"tokens": list(pad(ids, 1)), "response_lengths": [N] * ROWS, "rollout_log_probs": list(engine), "log_probs": list(train), "loss_masks": list(mask)}
    observe_slime(run, data, step, types.SimpleNamespace(rollout_temperature=1.0, rollout_top_p=1.0))

def nemo_rl(run, step, ids, engine, train, mask):
    data = {"input_ids": pad(ids, 1), "generation_logprobs": pad(engine, 0.0), "prev_logprobs": pad(train, 0.0), "token_mask": pad(mask, 0), "sample_mask": torch.ones(ROWS)}
    observe_nemo_rl(run, data, step, {"temperature": 1.0, "top_p": 1.0})

def openrlhf(run, step, ids, engine, train, mask):
    experience = types.SimpleNamespace(sequences=pad(ids, 1), action_log_probs=train, rollout_log_probs=engine, action_mask=mask.bool())
    observe_openrlhf(run, experience, step, sampler, step)

def prime_rl(run, step, ids, engine, train, mask):
    packed = {"input_ids": ids, "inference_logprobs": engine, "loss_mask": mask.bool(), "position_ids": torch.arange(N).repeat(ROWS, 1), "temperatures": torch.ones(ROWS, N)}
    packed = {name: column.reshape(1, -1) for name, column in packed.items()}
    observe_prime_rl(run, packed, train.reshape(1, -1), torch.full((1, ROWS * N), 0.6), step, step * ROWS)

for shifted in (False, True):
    for recipe in (verl, slime, nemo_rl, openrlhf, prime_rl):
        torch.manual_seed(1)
        name = recipe.__name__ + ("-shifted" if shifted else "")
        run = plumbline.init(run=name, record="runs/" + name, every=1)
        for step in range(STEPS):
            recipe(run, step, *draw(shifted))
            with run.step(step):
                pass
        run.finish()
"""
TOKENS = 6 * 16 * 21


def recipes():
    return "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S))


@pytest.fixture(scope="module")
def audits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    trainer.run_warm(recipes() + WORLD, folder, agent=None).ok()

    def audit(name):
        done = subprocess.run([str(BIN / "plumb"), "audit", str(folder / "runs" / name), "--format", "json", "--quiet"],
                              capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
        return json.loads(done.stdout)

    return audit


@pytest.mark.parametrize("name", ["verl", "slime", "nemo_rl", "openrlhf", "prime_rl"])
def test_a_recipe_records_both_halves_of_the_tokens_that_were_drawn(audits, name):
    healthy = audits(name)
    assert [f["title"] for f in healthy["findings"] if f["level"] != "note"] == []
    drift = next(v for v in healthy["verdicts"] if v["rule"] == "drift/logit-drift")
    assert drift["verdict"] == "pass" and drift["details"]["tokens"] == TOKENS, drift
    shifted = audits(name + "-shifted")
    assert "misalignment" in {f["cause"]["id"] for f in shifted["findings"] if f["rule"].startswith("drift/")}, shifted["findings"]


def test_each_recipe_is_short():
    for recipe in re.findall(r"def observe_.*?(?=```)", PAGE.read_text(), re.S):
        assert len(recipe.strip().splitlines()) <= 10
