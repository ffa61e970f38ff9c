"""run.watch and loops that are not one backward pass and one step: what a step is, and whose loss it was."""

import pytest
import trainer
from watch_calls import CODE, calls, steps


def test_a_backward_pass_that_was_no_updates_is_no_step(tmp_path):
    told = calls(tmp_path, """
run.watch(model, opt)
for i in range(3):
    (7 * model(x).mean()).backward(); opt.zero_grad()  # for a sharpness, or a log
    loss = model(x).mean() * 0 + i
    loss.backward(); opt.step(); opt.zero_grad()
""", "step_", "scalar step=0 loss", "scalar step=1 loss", "scalar step=2 loss")  # fmt: skip
    assert [c for c in told if c.startswith("step_")] == steps(0, 1, 2)
    assert [c for c in told if "loss" in c] == ["scalar step=0 loss=0", "scalar step=1 loss=1", "scalar step=2 loss=2"]


def test_a_loss_that_is_no_number_is_told_though_nobody_learns_from_it(tmp_path):
    assert calls(tmp_path, """
run.watch(model, opt)
for i in range(3):
    loss = model(x).mean() * (float("nan") if i == 1 else 1)
    loss.backward()
    if i != 1: opt.step()
    opt.zero_grad()
""", "scalar step=1 loss") == ["scalar step=1 loss=nan"]  # fmt: skip


@pytest.mark.parametrize("how", ["alone", "told"])
def test_an_optimizer_that_takes_anothers_place_is_watched(tmp_path, how):
    body = """
run.watch(model, opt)
def train(steps):
    for i in range(steps):
        for part in range(2): back()
        opt.step(); opt.zero_grad()
train(5)
opt = torch.optim.SGD(model.parameters(), lr=0.25)
if TOLD: run.watch(model, opt)
train(30)
"""
    outcome = trainer.run(CODE.format(body=("TOLD = %r" % (how == "told") + body).replace("\n", "\n    ")), tmp_path).ok()
    told = [c for c in outcome.calls if c.startswith("step_end")]
    rates = [c.split()[-1] for c in outcome.calls if c.startswith("scalar") and " lr=" in c]
    if how == "told":
        assert len(told) == 35 and rates == ["lr=0.5"] * 5 + ["lr=0.25"] * 30
        assert "replaced" not in outcome.err
    else:  # what 16 backward passes of one step are, is asked then
        assert 5 + 30 - 9 <= len(told) < 35 and rates == ["lr=0.5"] * 5 + ["lr=0.25"] * (len(rates) - 5)
        assert "the optimizer was replaced" in outcome.err


def test_backward_passes_without_a_step_are_told(tmp_path):
    outcome = trainer.run(CODE.format(body="""run.watch(model, opt)
    back(); opt.step(); opt.zero_grad()
    for i in range(300):
        back()
        with torch.no_grad(): model.weight.sub_(model.weight.grad); model.weight.grad.zero_()"""), tmp_path).ok()  # fmt: skip
    assert outcome.err.count("no step of a watched optimizer") == 1
    assert any("the optimizer's steps" in c for c in outcome.calls)


def test_what_is_left_of_a_gradient_is_looked_at_under_accumulation_too(tmp_path):
    told = calls(tmp_path, """
run.watch(model, opt)
for i in range(12):
    for part in range(3): back()
    opt.step()
    if i < 6: opt.zero_grad()
""", "look")  # fmt: skip
    assert told == ["look step=7 steps=8"]  # once


@pytest.mark.parametrize("apart", [True, False])
def test_two_models_by_a_call_each_step_together(tmp_path, apart):
    watches = "run.watch(model, opt); run.watch(other, second)" if apart else "run.watch(torch.nn.ModuleList([model, other]), [opt, second])"
    told = calls(tmp_path, f"""
other = torch.nn.Linear(2, 1, bias=False)
second = torch.optim.SGD(other.parameters(), lr=0.25)
{watches}
for i in range(3):
    opt.zero_grad(); (model(x).mean() * 0 + i).backward(); opt.step()
    second.zero_grad(); (other(x).mean() * 0 - i).backward(); second.step()
""", "step_", "scalar step=1 ", "scalar step=2 ")  # fmt: skip
    assert [c for c in told if c.startswith("step_")] == steps(0, 1, 2)
    assert sorted(c for c in told if "loss" in c) == [f"scalar step={i} partial_loss{n}={v}" for i in (1, 2) for n, v in ((".1", -i), ("", i))]
