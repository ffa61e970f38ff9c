"""run.watch(model, optimizer): the steps, losses and modules that the agent gets, and the screened tensors."""

import pytest
import torch

import plumbline._intended as intended
from plumbline import _library, _screen
import trainer
from watch_calls import CODE, calls, steps

ADAM = [{}, {"amsgrad": True}, {"weight_decay": 0.1}, {"maximize": True, "weight_decay": 0.01}, {"eps": 1e-3, "betas": (0.5, 0.9)}]
CONFIGURATIONS = [
    *((torch.optim.SGD, options) for options in (
        {}, {"weight_decay": 0.1}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.5}, {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.5, "weight_decay": 0.01, "maximize": True})),
    *((kind, options) for kind in (torch.optim.Adam, torch.optim.AdamW) for options in ADAM),
]  # fmt: skip


# torch's own step in fp64 is the reference: it adds the intended update, up to fp64's rounding.
@pytest.mark.parametrize("kind, options", CONFIGURATIONS)
def test_the_intended_update_is_the_one_that_torch_makes(kind, options):
    torch.manual_seed(len(options))
    weight = torch.nn.Parameter(torch.randn(300, dtype=torch.float64))
    optimizer = kind([weight], lr=0.01, **options)
    name = intended.kind_of(optimizer)
    assert name == kind.__name__.lower()
    for _ in range(4):
        weight.grad = torch.randn(300, dtype=torch.float64)
        before, gradient = weight.detach().clone(), weight.grad.clone()
        optimizer.step()
        meant = intended.intended(name, optimizer.param_groups[0], optimizer.state[weight], before, gradient)
        assert torch.allclose(weight.detach() - before, meant, rtol=1e-9, atol=1e-14)


def test_an_optimizer_that_steps_in_its_own_way_is_not_taken_for_another():
    class Own(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    class Named(torch.optim.AdamW):
        pass

    weight = [torch.nn.Parameter(torch.ones(2))]
    assert intended.kind_of(Own(weight, lr=1)) is None
    assert intended.kind_of(Named(weight, lr=1)) == "adamw"
    assert intended.kind_of(torch.optim.Adagrad(weight)) is None


# ---- steps, as reported to the agent ------------------------------------------------------------


def test_the_optimizers_step_ends_one(tmp_path):
    assert calls(tmp_path, """
run.watch(model, opt)
for i in range(3): back(); opt.step(); opt.zero_grad()
""") == steps(0, 1, 2)  # fmt: skip


def test_micro_batches_are_one_step_and_evaluation_none(tmp_path):
    assert calls(tmp_path, """
run.watch(model, opt)
for i in range(2):
    for m in range(3): back()
    opt.step(); opt.zero_grad()
    model.eval()
    with torch.no_grad(): model(x)
    model.train()
""") == steps(0, 1)  # fmt: skip


def test_a_step_that_the_scaler_skipped_counts(tmp_path):
    assert calls(tmp_path, """
class GradScaler: pass  # that a process has one is what is asked for
scaler = GradScaler()
run.watch(model, opt)
opt.zero_grad(); back(); opt.step()
opt.zero_grad(); back()  # no step
opt.zero_grad(); back(); opt.step()
""") == steps(0, 1, 2)  # fmt: skip


def test_a_closure_that_is_called_often_is_one_step(tmp_path):
    reported = calls(tmp_path, """
opt = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
run.watch(model, opt)
with torch.no_grad(): model.weight.fill_(1)
def closure():
    opt.zero_grad()
    loss = (model(x) - 3).pow(2).mean()
    loss.backward()
    return loss
for i in range(2): opt.step(closure)
""", "step_", "scalar step=0 loss", "tensor weight/gradient", "scalar step=0 grad_norm", "scalar step=0 update", "update")  # fmt: skip
    assert [c for c in reported if c.startswith("step_")] == steps(0, 1)
    assert [c for c in reported if "loss" in c] == ["scalar step=0 loss=1"]  # the loss before the step
    assert not any("update" in c for c in reported) and any("grad_norm" in c for c in reported)  # the distance is not reported either


def test_a_closure_of_an_optimizer_that_is_known_accuses_none(tmp_path):
    reported = calls(tmp_path, """
run.watch(model, opt)
def closure():
    opt.zero_grad(); loss = (model(x) - 3).pow(2).mean(); loss.backward()
    return loss
for i in range(3): opt.step(closure)
""", "step_", "update")  # fmt: skip
    assert [c for c in reported if c.startswith("step_")] == steps(0, 1, 2)
    updates = [c for c in reported if c.startswith("update")]
    assert len(updates) == 3  # the weights are examined when the closure returns, before its update


def test_several_optimizers_step_together_or_one_more_often(tmp_path):
    assert calls(tmp_path, """
other = torch.nn.Linear(2, 1)
second = torch.optim.Adam(other.parameters())
run.watch(torch.nn.ModuleList([model, other]), [opt, second])
def both():
    back(); other(x).mean().backward()
both(); opt.step(); second.step()
both(); opt.step(); both(); opt.step(); second.step()
""") == steps(0, 1, 2)  # fmt: skip


# Two optimizers that share a backward pass have one loss; each has the gradients that it holds.
def test_several_optimizers_have_a_norm_each_and_one_loss(tmp_path):
    reported = calls(tmp_path, """
other = torch.nn.Linear(2, 1, bias=False)
second = torch.optim.SGD(other.parameters(), lr=0.25)
plumbline._watch._SHARE = 1000
run.watch(torch.nn.ModuleList([model, other]), [opt, second])
with torch.no_grad(): model.weight.fill_(1); other.weight.fill_(2)
for i in range(2):
    (model(x).mean() + 2 * other(x).mean()).backward()
    opt.step()
    if i == 0: second.step()
    opt.zero_grad(); second.zero_grad()
""", "scalar step=0 grad_norm", "scalar step=0 loss", "scalar step=1", "scalar step=0 partial")  # fmt: skip
    assert reported[:3] == ["scalar step=0 grad_norm=1.41421", "scalar step=0 grad_norm.1=2.82843", "scalar step=0 loss=10"]
    assert "scalar step=1 grad_norm=1.41421" in reported


# If several optimizers have separate backward passes, each has its own loss, in the step of its update.
def test_a_loss_belongs_to_the_optimizer_that_steps_next(tmp_path):
    reported = calls(tmp_path, """
other = torch.nn.Linear(2, 1, bias=False)
second = torch.optim.SGD(other.parameters(), lr=0.0)
opt.param_groups[0]["lr"] = 0.0
plumbline._watch._SHARE = 1000  # however dear a screening is on a busy machine
run.watch(torch.nn.ModuleList([model, other]), [opt, second])
with torch.no_grad(): model.weight.fill_(1); other.weight.fill_(2)
for i in range(4):
    opt.zero_grad(); ((1 + i) * model(x).mean()).backward(); opt.step()
    if i % 2 == 1:
        second.zero_grad(); (model(x).mean() + (1 + i) * other(x).mean()).backward(); second.step()
""", "scalar step=0 ", "scalar step=1 ", "scalar step=2 ", "scalar step=3 ")  # fmt: skip
    assert [c for c in reported if "loss" in c] == [
        "scalar step=0 partial_loss=2", "scalar step=1 partial_loss=4", "scalar step=1 partial_loss.1=10",
        "scalar step=2 partial_loss=6", "scalar step=3 partial_loss=8", "scalar step=3 partial_loss.1=18"]  # fmt: skip
    norms = [c.partition(" ")[2] for c in reported if "grad_norm" in c]
    assert norms == ["step=0 grad_norm=1.41421", "step=1 grad_norm=2.82843", "step=1 grad_norm.1=2.82843",
                     "step=2 grad_norm=4.24264", "step=3 grad_norm=5.65685", "step=3 grad_norm.1=5.65685"]  # fmt: skip


def test_a_second_model_has_names_of_its_own(tmp_path):
    reported = calls(tmp_path, """
other = torch.nn.Linear(2, 1, bias=False)
second = torch.optim.SGD(other.parameters(), lr=0.25)
first = run.watch(model, opt); run.watch(other, second)
back(); opt.step(); opt.zero_grad(); other(x).mean().backward(); second.step()
first.remove()
run.watch(model, opt).remove()
""", "tensor weight", "tensor model2.weight", "scalar", "update")  # fmt: skip
    assert {c.split()[1] for c in reported if c.startswith("tensor")} == {"weight/gradient", "weight/weight", "model2.weight/gradient",
                                                                      "model2.weight/weight"}  # fmt: skip
    assert {c.split()[2].split("=")[0] for c in reported if c.startswith("scalar")} >= {"partial_loss", "partial_loss.1", "lr", "lr.1"}


def test_a_trainer_that_calls_a_part_of_the_model(tmp_path):
    reported = calls(tmp_path, """
whole = torch.nn.Sequential(model, torch.nn.Linear(1, 1))
opt = torch.optim.SGD(whole.parameters(), lr=0.5)
run.watch(whole, opt)
with torch.no_grad(): model.weight.fill_(1)
for i in range(2): back(); opt.step(); opt.zero_grad()
""", "step_begin", "scalar step=0 loss")  # fmt: skip
    assert reported == ["step_begin 0", "scalar step=0 loss=2", "step_begin 1"]


def test_a_schedule_may_come_before_or_after(tmp_path):
    reported = calls(tmp_path, """
before = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
run.watch(model, opt)
after = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
for i in range(2): back(); opt.step(); before.step(); after.step()
""", "step_begin", "scalar step=0 lr", "scalar step=1 lr")  # fmt: skip
    assert reported == ["step_begin 0", "scalar step=0 lr=0.5", "step_begin 1", "scalar step=1 lr=0.125"]


def test_steps_of_the_trainers_own_stay(tmp_path):
    assert calls(tmp_path, """
run.watch(model, opt)
for i in (3, 5):
    with run.step(i): back(); opt.step()
run.begin_step(); back(); opt.step(); run.end_step()
run.begin_step(9); run.end_step(); run.end_step()
""") == steps(3, 5, 6, 9)  # fmt: skip


def test_the_series_and_those_that_the_trainer_reports(tmp_path):
    reported = calls(tmp_path, """
run.watch(model, opt)
with torch.no_grad(): model.weight.fill_(1)
back(); back(); opt.step(); opt.zero_grad()
run.watch  # nothing happens here
with run.step(7):
    run.scalar("loss", 42); back(); opt.step()
""", "scalar")  # fmt: skip
    # The losses of the two micro-batches are 2 and 2; the gradient of each is (1, 1).
    reported = [line for line in reported if "=0 trained/" not in line]
    assert reported[:3] == ["scalar step=0 grad_norm=2.82843", "scalar step=0 loss=4", "scalar step=0 lr=0.5"]
    assert [c for c in reported if " loss" in c] == ["scalar step=0 loss=4", "scalar step=7 loss=42"]
    assert {"scalar step=7 logged/loss=42", "scalar step=7 measured/loss=0"} <= set(reported)


def test_the_loss_of_a_thousand_micro_batches_is_their_sum(tmp_path):
    reported = calls(tmp_path, """
run.watch(model, opt)
with torch.no_grad(): model.weight.fill_(1)
for m in range(1024): back()
opt.step()
""", "scalar step=0 loss")  # fmt: skip
    assert reported == ["scalar step=0 loss=2048"]


def test_remove_takes_everything_away(tmp_path):
    assert calls(tmp_path, """
plain = torch.Tensor.backward, opt.step, opt.zero_grad
watched = run.watch(model, opt)
assert torch.Tensor.backward is not plain[0]
watched.remove()
assert (torch.Tensor.backward, opt.step, opt.zero_grad) == plain
assert not model._forward_pre_hooks
back(); opt.step()
""") == []  # fmt: skip


@pytest.mark.parametrize("call, stated", [
    ("run.watch(opt, model)", "expected a torch.nn.Module, not SGD"),
    ("run.watch(model, model)", "expected an optimizer of torch.optim, a framework's wrapper of one, or a list of them, not Linear"),
])  # fmt: skip
def test_a_mistake_is_stated_once_and_training_goes_on(tmp_path, call, stated):
    body = f"{call}\n    {call}\n    back(); opt.step()"
    outcome = trainer.run(CODE.format(body=body), tmp_path, warm=True).ok()
    assert outcome.err.count(f"watch: {stated}") == 1


def test_what_breaks_inside_never_reaches_the_trainer(tmp_path):
    body = """import plumbline._watch as w
    run.watch(model, opt)
    w.Watch._open = w.Updates.before = w.Updates.after = None
    back(); opt.step(); opt.zero_grad(); print("trained")"""
    outcome = trainer.run(CODE.format(body=body), tmp_path, warm=True).ok()
    assert outcome.out == "trained\n" and "printed once; the trainer continues" in outcome.err


def test_outputs_of_chosen_modules_and_buffers(tmp_path):
    reported = calls(tmp_path, """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
        self.register_buffer("mask", torch.full((2, 2), float("-inf")).triu(1))
    def forward(self, x): return self.last(self.norm(self.first(x)))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
run.watch(net, opt, activations=["first", "n*"])
for i in range(2):
    net(torch.randn(3, 2)).mean().backward(); opt.step(); opt.zero_grad()
    with torch.no_grad(): net(x)
net.eval(); net(x)
""", "tensor ")  # fmt: skip
    names = [line.split()[1] for line in reported if "first/activation" in line or "norm/activation" in line]
    assert len(names) == 4
    buffers = {line.split()[1] for line in reported if "/tensor" in line}
    assert buffers == {"norm.running_mean/tensor", "norm.running_var/tensor"}  # no mask, no count


def test_a_wrapper_of_several_processes_in_one_process_has_no_sums_that_could_be_missed(tmp_path):
    outcome = trainer.run(CODE.format(body="""class FullyShardedDataParallel(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 1)
        def forward(self, x): return self.inner(x)
    model = FullyShardedDataParallel()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    run.watch(model, opt)
    back(); opt.step()"""), tmp_path).ok()  # fmt: skip
    assert "sums" not in outcome.err
    assert not any("unhooked: " in c or "unseen: " in c for c in outcome.calls)


@pytest.mark.parametrize("call, stated", [
    ("run.watch(model, opt, scalr=1)", "'scaler' meant"), ("run.watch(model, 3)", "expected an optimizer"),
    ("run.watch(torch.jit.script(torch.nn.Linear(2, 1)), opt)", "before torch.jit"),
    ("first = run.watch(model, opt); run.watch(model, opt)", "watched already"),
])  # fmt: skip
def test_a_wrong_call_is_stated_and_raises_nothing(tmp_path, call, stated):
    outcome = trainer.run(CODE.format(body=f"{call}; back(); opt.step()"), tmp_path, warm=True).ok()
    assert stated in outcome.err


def test_a_module_that_is_not_there_is_stated(tmp_path):
    outcome = trainer.run(CODE.format(body='run.watch(model, opt, activations=["frist"]); back(); opt.step()'), tmp_path).ok()
    assert "no module is named 'frist'" in outcome.err


# ---- screened tensors -----------------------------------------------------------------------------


def test_what_is_noticed_is_looked_at(tmp_path):
    reported = calls(tmp_path, """
plumbline._watch._SHARE = 1  # however dear a screening is on a busy machine
run.watch(model, opt)
for i in range(24):
    loss = model(x).mean() * (float("nan") if i == 20 else 1.0)
    if i != 20: loss.backward()
    else:
        loss.backward(); model.weight.grad.nan_to_num_()
    if i == 12: model.weight.grad.mul_(1e6)
    if i in (14, 15): model.weight.grad.zero_()
    opt.step(); opt.zero_grad()
""", "look")  # fmt: skip
    assert reported == [f"look step={i} steps=8" for i in (12, 14, 20, 20, 20)]  # the loss, the gradient, and the bias after the update


def test_a_parameter_that_stands_still_is_looked_at_once(tmp_path):
    reported = calls(tmp_path, """
held = torch.nn.Linear(2, 2)
both = torch.nn.ModuleList([model, held])
plumbline._watch._SHARE = 1
run.watch(both, opt)
for i in range(12):
    (model(x).mean() + held(x).mean()).backward(); opt.step(); both.zero_grad()
""", "look")  # fmt: skip
    assert reported == ["look step=3 steps=8"]


def test_a_rate_of_zero_is_no_parameter_that_stands_still(tmp_path):
    assert calls(tmp_path, """
opt.param_groups[0]["lr"] = 0.0
run.watch(model, opt)
for i in range(8): back(); opt.step(); opt.zero_grad()
""", "look") == []  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_the_screenings_numbers_are_right(seed):
    generator = torch.Generator().manual_seed(seed)
    library = _library.load().short
    for count in (1, 2, 7, 8, 9, 63, 64, 65, 1000, 4097):
        x = torch.randn(count, generator=generator) * 10.0 ** torch.randint(-30, 30, (1,), generator=generator).item()
        (norm,) = _screen.norms(library, [x])
        assert norm == pytest.approx(x.double().norm().item(), rel=1e-12)
        sums = _screen.Checksums(library, [x, x.clone(), x.t() if x.dim() > 1 else x])
        first = sums()
        assert first[0] == first[1] == first[2]
        at, bit = torch.randint(0, count, (1,), generator=generator).item(), torch.randint(0, 32, (1,), generator=generator).item()
        x.view(torch.int32)[at] ^= torch.tensor(1 << bit if bit < 31 else -(1 << 31), dtype=torch.int32)
        assert sums()[0] != first[0]
    for dtype in (torch.float64, torch.float16, torch.bfloat16):  # by torch, if the library does not read them
        x = torch.randn(33, generator=generator).to(dtype)
        assert _screen.norms(library, [x]) == pytest.approx([x.double().norm().item()], rel=1e-2)
        strided = _screen.Checksums(library, [x[::2]])
        before = strided()
        x[2] = -x[2]
        assert strided() != before
    assert _screen.norms(library, [torch.tensor([1.0, float("inf")])]) == [float("inf")]
    assert not _screen.norms(library, [torch.tensor([float("nan")])])[0] >= 0
