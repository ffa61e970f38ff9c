"""run.watch and the wrappers that frameworks put around optimizers, losses and gradients."""

import sys
import types

import pytest
import torch
import trainer
from plumbline._watching import frames
from watch_calls import CODE, calls, steps

WRAPPER = """
class Wrapper(torch.optim.Optimizer):
    def __init__(self, optimizer): self.optimizer, self.calls = optimizer, 0
    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    def step(self):
        self.calls += 1
        if self.calls % 2 == 0: self.optimizer.step()
    def zero_grad(self):
        if self.calls % 2 == 0: self.optimizer.zero_grad()
"""


def test_a_wrapper_that_does_nothing_at_micro_batches_makes_no_step(tmp_path):
    reported = calls(tmp_path, WRAPPER + """
opt = Wrapper(opt)
run.watch(model, opt)
for i in range(4):
    (model(x).mean() * 0 + 1).backward(); opt.step(); opt.zero_grad()
""", "step_", "scalar step=0 loss", "scalar step=1 loss", "update")  # fmt: skip
    assert [c for c in reported if c.startswith("step_")] == steps(0, 1)
    assert [c for c in reported if "loss" in c] == ["scalar step=0 loss=2", "scalar step=1 loss=2"]
    assert any(c.startswith("update") for c in reported)  # its rule is that of the inner optimizer


def test_a_list_of_wrappers_and_of_what_is_inside_is_opened_once(tmp_path):
    reported = calls(tmp_path, WRAPPER + """
run.watch(model, [Wrapper(opt), opt])
for i in range(2): back(); opt.step(); opt.zero_grad()
""", "step_", "scalar step=0 lr")  # fmt: skip
    assert [c for c in reported if c.startswith("step_")] == steps(0, 1)
    assert len([c for c in reported if " lr" in c]) == 1


def test_the_norm_is_the_one_before_the_clip(tmp_path):
    reported = calls(tmp_path, """
run.watch(model, opt)
for i in range(6):
    model.weight.grad = None
    (model.weight * 3).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
""", *(f"scalar step={i} grad_norm" for i in range(6)))  # fmt: skip
    assert len(reported) == 6 and len({c.split("=")[-1] for c in reported}) == 1  # in every step
    assert float(reported[0].split("=")[-1]) > 3


def test_a_loss_that_the_trainer_scales_itself_is_the_one_before(tmp_path):
    reported = calls(tmp_path, """
run.watch(model, opt)
for i in range(4):
    scale = 2.0 ** (8 + i)
    ((model(x).mean() * 0 + model.weight.sum() * 0 + (model.weight - model.weight.detach()).sum() + 3) * scale).backward()
    model.weight.grad /= scale
    opt.step(); opt.zero_grad()
""", *(f"scalar step={i} loss" for i in range(4)))  # fmt: skip
    assert reported == [f"scalar step={i} loss=3" for i in range(4)]


def test_parameters_without_a_gradient_are_counted_from_the_third_step_on(tmp_path):
    reported = calls(tmp_path, """
model = torch.nn.ModuleList([torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)])
opt = torch.optim.SGD(model.parameters(), lr=0.5)
run.watch(model, opt)
for i in range(4):
    (model[0](x).mean() + model[1](x).mean().detach()).backward()
    opt.step(); opt.zero_grad()
""", *(f"scalar step={i} trained/" for i in range(4)))  # fmt: skip
    reported = [line for line in reported if "trained/first_loss" not in line]
    assert sorted(reported) == ["scalar step=2 trained/held=4", "scalar step=2 trained/never:1.bias=1", "scalar step=2 trained/never:1.weight=1",
                            "scalar step=2 trained/never=2", "scalar step=2 trained/ran=2", "scalar step=2 trained/replaced=0",
                            "scalar step=2 trained/steps=3", "scalar step=2 trained/whole=0"]  # fmt: skip


def test_what_is_not_watched_is_printed_though_warnings_are_ignored(tmp_path):
    outcome = trainer.run(CODE.format(body="""import warnings; warnings.simplefilter("ignore")
    run.watch(model, model)
    with run.step(0): run.scalar("loss", 1.0)"""), tmp_path).ok()  # fmt: skip
    assert outcome.err.count("plumbline: watch: expected an optimizer of torch.optim") == 1
    assert any("the model" in c for c in outcome.calls)  # also in a record, if there is one


@pytest.mark.parametrize("late", [False, True])
def test_without_an_optimizer_the_one_that_holds_the_parameters_is_watched(tmp_path, late):
    reported = calls(tmp_path, f"""
late = {late}
if late: del opt
run.watch(model)
if late: opt = torch.optim.SGD(model.parameters(), lr=0.5)
for i in range(3): back(); opt.step(); opt.zero_grad()
""", "step_", "scalar step=2 lr")  # fmt: skip
    assert [c for c in reported if c.startswith("step_")] == steps(0, 1, 2)
    assert [c for c in reported if " lr" in c] == ["scalar step=2 lr=0.5"]


def test_an_engine_is_found_among_all_living_objects(monkeypatch):
    """Also keeps objects without a __dict__ alive. So an optimizer without an engine is watched while deepspeed is loaded."""
    engine = type("DeepSpeedEngine", (), {})()
    optimizer, other, model = object(), object(), torch.nn.Linear(1, 1)
    engine.optimizer = optimizer
    assert frames._engine(optimizer, model) is None
    monkeypatch.setitem(sys.modules, "deepspeed", types.ModuleType("deepspeed"))
    assert frames._engine(optimizer, model) is engine
    assert frames._engine(other, model) is None
