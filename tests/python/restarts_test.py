"""A restart in another process: the weights continue and the optimizer starts from zero. Also similar healthy cases."""

import json
import pathlib
import subprocess

import pytest
import trainer

BIN = pathlib.Path(trainer.BUILD) / "bin"
pytestmark = pytest.mark.skipif(not (BIN / "plumb").exists(), reason="plumb is not built")

# Two attempts of one record. `kept`: the state that the second attempt loads.
CODE = """
    import os, sys
    import plumbline, torch

    torch.manual_seed({seed} + int(sys.argv[1]))
    w = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    data = torch.Generator().manual_seed(5 + int(sys.argv[1]))
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    opt = {optimizer}
    if sys.argv[1] == "1":
        state = torch.load("saved.pt")
        if "weights" in {kept!r}: model.load_state_dict(state["weights"])
        if "optimizer" in {kept!r}: opt.load_state_dict(state["optimizer"])
    run = plumbline.init(run="exp1", record="runs")
    run.watch(model, opt)
    for i in range(80):
        x = torch.randn(32, 8, generator=data)
        loss = torch.nn.functional.mse_loss(model(x), x @ w)
        loss.backward(); opt.step(); opt.zero_grad()
    run.finish()
    torch.save({{"weights": model.state_dict(), "optimizer": opt.state_dict()}}, "saved.pt")
"""


def verdicts(tmp_path, kept, optimizer, seed=0):
    for attempt in "01":
        trainer.run_warm(CODE.format(kept=kept, optimizer=optimizer, seed=seed), tmp_path, agent=None, arguments=(attempt,), PLUMBLINE_BUDGET="1").ok()
    done = subprocess.run([str(BIN / "plumb"), "audit", "runs", "--format", "json", "--quiet", "--rules", "health/optimizer-state"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=120)  # fmt: skip
    return [v for v in json.loads(done.stdout)["verdicts"] if v["rule"] == "health/optimizer-state"]


OPTIMIZERS = {
    "adamw": "torch.optim.AdamW(model.parameters(), lr=1e-2)",
    "momentum": "torch.optim.SGD(model.parameters(), lr=5e-2, momentum=0.9)",
    "rmsprop": "torch.optim.RMSprop(model.parameters(), lr=3e-3)",
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_moments_that_are_lost_are_found(tmp_path, name):
    found = [v for v in verdicts(tmp_path, ["weights"], OPTIMIZERS[name]) if v["verdict"] == "finding"]
    assert len(found) == 1 and "trained/anew" in str(found[0]["site"]), found


@pytest.mark.parametrize("kept", [["weights", "optimizer"], []])
def test_what_is_restored_whole_or_begins_whole_is_no_fault(tmp_path, kept):
    reported = verdicts(tmp_path, kept, OPTIMIZERS["adamw"], seed=3)
    assert not [v for v in reported if v["verdict"] == "finding"], reported
    assert [v for v in reported if v["verdict"] == "pass"], reported


def test_an_optimizer_without_moments_has_none_to_lose(tmp_path):
    assert not [v for v in verdicts(tmp_path, ["weights"], "torch.optim.SGD(model.parameters(), lr=0.1)") if v["verdict"] == "finding"]
