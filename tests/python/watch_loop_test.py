"""run.watch and loops other than one backward pass and one step: the extent of a step, and the step to which a loss belongs."""

import json
import pathlib
import subprocess

import pytest
import trainer
from watch_calls import CODE, calls, steps


def test_a_backward_pass_that_was_no_updates_is_no_step(tmp_path):
    reported = calls(tmp_path, """
run.watch(model, opt)
for i in range(3):
    (7 * model(x).mean()).backward(); opt.zero_grad()  # for a sharpness, or a log
    loss = model(x).mean() * 0 + i
    loss.backward(); opt.step(); opt.zero_grad()
""", "step_", "scalar step=0 loss", "scalar step=1 loss", "scalar step=2 loss")  # fmt: skip
    assert [c for c in reported if c.startswith("step_")] == steps(0, 1, 2)
    assert [c for c in reported if "loss" in c] == ["scalar step=0 loss=0", "scalar step=1 loss=1", "scalar step=2 loss=2"]


def test_a_nan_loss_is_reported_even_if_no_update_uses_it(tmp_path):
    assert calls(tmp_path, """
run.watch(model, opt)
for i in range(3):
    loss = model(x).mean() * (float("nan") if i == 1 else 1)
    loss.backward()
    if i != 1: opt.step()
    opt.zero_grad()
""", "scalar step=1 loss") == ["scalar step=1 loss=nan"]  # fmt: skip


@pytest.mark.parametrize("how", ["alone", "watched"])
def test_an_optimizer_that_takes_anothers_place_is_watched(tmp_path, how):
    body = """
run.watch(model, opt)
def train(steps):
    for i in range(steps):
        for part in range(2): back()
        opt.step(); opt.zero_grad()
train(5)
opt = torch.optim.SGD(model.parameters(), lr=0.25)
if WATCHED: run.watch(model, opt)
train(30)
"""
    outcome = trainer.run_warm(CODE.format(body=("WATCHED = %r" % (how == "watched") + body).replace("\n", "\n    ")), tmp_path).ok()
    reported = [c for c in outcome.calls if c.startswith("step_end")]
    rates = [c.split()[-1] for c in outcome.calls if c.startswith("scalar") and " lr=" in c]
    if how == "watched":
        assert len(reported) == 35 and rates == ["lr=0.5"] * 5 + ["lr=0.25"] * 30
        assert "replaced" not in outcome.err
    else:  # the optimizer is looked for after 16 backward passes of one step
        assert 5 + 30 - 9 <= len(reported) < 35 and rates == ["lr=0.5"] * 5 + ["lr=0.25"] * (len(rates) - 5)
        assert "the optimizer was replaced" in outcome.err


def test_backward_passes_without_a_step_are_reported(tmp_path):
    outcome = trainer.run_warm(CODE.format(body="""run.watch(model, opt)
    back(); opt.step(); opt.zero_grad()
    for i in range(300):
        back()
        with torch.no_grad(): model.weight.sub_(model.weight.grad); model.weight.grad.zero_()"""), tmp_path).ok()  # fmt: skip
    assert outcome.err.count("no step of a watched optimizer") == 1
    assert any("the optimizer's steps" in c for c in outcome.calls)


def test_what_is_left_of_a_gradient_is_looked_at_under_accumulation_too(tmp_path):
    reported = calls(tmp_path, """
run.watch(model, opt)
for i in range(12):
    for part in range(3): back()
    opt.step()
    if i < 6: opt.zero_grad()
""", "look")  # fmt: skip
    assert reported == ["look step=7 steps=8"]  # once


@pytest.mark.parametrize("apart", [True, False])
def test_two_models_by_a_call_each_step_together(tmp_path, apart):
    watches = "run.watch(model, opt); run.watch(other, second)" if apart else "run.watch(torch.nn.ModuleList([model, other]), [opt, second])"
    reported = calls(tmp_path, f"""
other = torch.nn.Linear(2, 1, bias=False)
second = torch.optim.SGD(other.parameters(), lr=0.25)
{watches}
for i in range(3):
    opt.zero_grad(); (model(x).mean() * 0 + i).backward(); opt.step()
    second.zero_grad(); (other(x).mean() * 0 - i).backward(); second.step()
""", "step_", "scalar step=1 ", "scalar step=2 ")  # fmt: skip
    assert [c for c in reported if c.startswith("step_")] == steps(0, 1, 2)
    assert sorted(c for c in reported if "loss" in c) == [f"scalar step={i} partial_loss{n}={v}" for i in (1, 2) for n, v in ((".1", -i), ("", i))]


def test_a_loss_that_is_weighed_by_backward_is_the_weighted_sum(tmp_path):
    reported = calls(tmp_path, """
run.watch(model, opt)
y = torch.tensor([1.0, 2.0, 3.0])
for i in range(3):
    each = model(x).squeeze(1) * 0 + y
    if i == 0: each.backward(torch.full_like(each, 1 / 3))
    if i == 1: torch.autograd.backward([each.sum() / 2, each.max()])
    if i == 2: torch.autograd.backward([each, each.sum()], [torch.tensor([1.0, 0.0, 2.0]), torch.tensor(0.5)])
    opt.step(); opt.zero_grad()
for i in range(2):
    (model(x).mean() * 0 + 4).backward(torch.tensor(0.5)); opt.step(); opt.zero_grad()
""", "scalar")  # fmt: skip
    assert [c for c in reported if " loss=" in c] == [f"scalar step={i} loss={v}" for i, v in enumerate((2, 6, 10, 2, 2))]
    assert not any("the loss" in c for c in reported)


def test_gradients_of_an_activation_are_no_loss_and_that_is_stated(tmp_path):
    outcome = trainer.run_warm(CODE.format(body="""run.watch(model, opt)
    for i in range(40):
        out = model(x)
        out.backward(torch.tensor([[0.5], [-0.25], [0.125]])); opt.step(); opt.zero_grad()"""), tmp_path).ok()  # fmt: skip
    assert outcome.only("scalar") and not [c for c in outcome.only("scalar") if "loss" in c.split("=")[1]]
    assert [c for c in outcome.calls if c.startswith("site the loss/unseen: ")] and len(outcome.only("step_end")) == 40


@pytest.mark.parametrize("steps", [2, 3])
def test_a_run_of_few_steps_states_at_its_end_that_no_loss_was_seen(tmp_path, steps):
    body = f"run.watch(model, opt)\n    for i in range({steps}):\n        model.weight.grad = torch.ones(1, 2); opt.step()"
    assert any("site the loss/" in c for c in trainer.run_warm(CODE.format(body=body), tmp_path).ok().calls) == (steps == 3)


SURGERY = """
run.watch(model, opt)
for i in range(6):
    kept = []
    for k in range(2):
        opt.zero_grad()
        loss = (model(x) * (k + 1)).mean() * 0 + model.weight[0, k] + i + k
        loss.backward(); kept.append(model.weight.grad.clone())
    if {surgery}: model.weight.grad = kept[0] + kept[1]
    opt.step()
"""


@pytest.mark.parametrize("surgery", [True, False])
def test_the_loss_of_one_task_is_not_called_the_whole(tmp_path, surgery):
    """Gradients of several passes, each cleared before the next, are put together: the last pass has a part of the loss."""
    reported = calls(tmp_path, SURGERY.format(surgery=surgery), "scalar")
    names = {c.split()[2].split("=")[0] for c in reported if "loss" in c.split()[2]}
    assert names - {"trained/first_loss"} == ({"partial_loss"} if surgery else {"loss"})


def test_micro_batches_of_another_loss_are_reported(tmp_path):
    reported = calls(tmp_path, """
run.watch(model, opt)
for i in range(8):
    for part in range(4): (model(x) ** 2).mean().backward()
    opt.step(); opt.zero_grad()
""", "scalar")  # fmt: skip
    assert [c.split()[1] for c in reported if "trained/micro=4" in c] == [f"step={i}" for i in range(4)]


THREADS = """
    import threading
    import plumbline, torch
    def train(name, factor):
        run = plumbline.init(run=name, record=name, every=1)
        model = torch.nn.Linear(2, 1, bias=False); opt = torch.optim.SGD(model.parameters(), lr=0.0)
        run.watch(model, opt)
        for i in range(20):
            barrier.wait()
            (model(torch.ones(3, 2)).mean() * 0 + factor + i).backward(); barrier.wait(); opt.step(); opt.zero_grad()
        run.finish()
    barrier = threading.Barrier(2)
    both = [threading.Thread(target=train, args=one) for one in (("a", 100), ("b", 200))]
    for one in both: one.start()
    for one in both: one.join()
"""


def test_two_trainers_in_two_threads_have_each_its_own_losses(tmp_path):
    trainer.run_warm(THREADS, tmp_path, agent=None).ok()
    tool = pathlib.Path(trainer.BUILD) / "bin/agent_record_json"
    for name, first in (("a", 100), ("b", 200)):
        losses = {}
        for record in (tmp_path / name).glob("*.plr"):
            for line in subprocess.run([tool, record], capture_output=True, text=True).stdout.splitlines():
                reported = json.loads(line).get("evidence", {}) if line.startswith("{") else {}
                if reported.get("site", {}).get("op") == "loss":
                    losses[int(reported.get("step", 0))] = reported["scalar"].get("value", 0)
        assert losses == {i: first + i for i in range(20)}, name
