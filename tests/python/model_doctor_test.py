"""python -m plumbline doctor --model: how watch would classify the parts of a model, without training."""

import os
import pathlib
import subprocess
import sys

import plumbline
import pytest
import torch
from router_kinds import KINDS, H, Model
from torch import nn

SHOP = """
import torch, router_kinds
from router_kinds import Model, MixtralLike, SwitchLike, SparseAttention
def good():
    torch.manual_seed(0)
    model = Model(SwitchLike)
    return model, torch.optim.AdamW(model.parameters()), (torch.randint(0, 64, (4, 32)),)
def partly():
    model = Model(MixtralLike)
    model.head.weight = model.embed.weight
    model.place.requires_grad_(False)
    return model, torch.optim.Adagrad([model.head.weight])
def replaced():
    model = Model(MixtralLike)
    model.blocks[1].forward = model.blocks[1].forward
    return model
def raises():
    model = 1
    return model.missing
def number():
    return 3
"""


def doctor(tmp_path, model, *words):
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "broken.py").write_text("import torch\nimport not_there\n")
    env = {**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{pathlib.Path(__file__).parent}"}
    return subprocess.run([sys.executable, "-m", "plumbline", "doctor", "--model", model, *words], cwd=tmp_path, env=env,
                          capture_output=True, text=True, timeout=250, check=False)  # fmt: skip


def test_doctor_when_all_is_well(tmp_path):
    done = doctor(tmp_path, "shop:good")
    assert done.returncode == 0, done.stderr
    for words in ("58 trained (21,376 numbers), 0 frozen, 0 tied", "AdamW, 1 group, updates recomputed as adamw",
                  "blocks.0, blocks.1: a choice of 8, Switch-like structure; capacity: 5, a number set in the module",
                  "2 of 2 routers observed", "fifo-capacity, kept choices observed, capacity 5 (declared)",
                  "everything would be watched"):  # fmt: skip
        assert words in done.stdout


def test_doctor_states_what_is_not_watched_and_why(tmp_path):
    done = doctor(tmp_path, "shop:partly")
    assert done.returncode == 1
    for words in ("1 frozen: place, 1 tied: head.weight = embed.weight", "updates of Adagrad: its update rule is not known",
                  "no optimizer holds them. pass them to an optimizer, or freeze them", "2 not watched"):  # fmt: skip
        assert words in done.stdout
    done = doctor(tmp_path, "shop:replaced")
    assert done.returncode == 1
    assert "router blocks.1: its forward was replaced on the instance; watch the model before that" in done.stdout


@pytest.mark.parametrize("model, stated", [
    ("shop", "--model is 'shop'; expected MODULE:FACTORY"),
    ("shap:good", "there is no module shap in "),
    ("shop:nothing", "shop has no function nothing; it has good, partly, replaced"),
    ("broken:make", "importing broken: broken.py:2: ModuleNotFoundError: No module named 'not_there'"),
    ("shop:raises", "shop:raises: shop.py:19: AttributeError: 'int' object has no attribute 'missing'"),
    ("shop:number", "shop:number returned int; expected a torch.nn.Module"),
])  # fmt: skip
def test_doctor_when_the_model_cannot_be_made(tmp_path, model, stated):
    done = doctor(tmp_path, model)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("plumbline doctor: ") and stated in done.stderr and done.stderr.count("\n") == 1


def test_doctor_has_help(tmp_path):
    done = doctor(tmp_path, "shop:good", "--help")
    assert done.returncode == 0 and "MODULE:FACTORY" in done.stdout and "Exit status" in done.stdout


def test_doctors_forward_pass_leaves_the_model_and_the_dice_alone(capsys):
    from plumbline import _doctor

    torch.manual_seed(1)
    model = Model(KINDS["deepspeed-rts"])
    norm = nn.BatchNorm1d(32)
    model.blocks.append(norm)  # has buffers that a forward pass in training changes
    model.norms.append(nn.LayerNorm(H))
    given = torch.randint(0, 64, (8, 32))
    before, dice = {n: t.clone() for n, t in model.state_dict().items()}, torch.get_rng_state()
    report = _doctor._Report()
    _doctor._forward(report, model, given)
    assert torch.equal(dice, torch.get_rng_state()) and report.missing == []
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    assert "2 of 2 routers observed" in capsys.readouterr().out


def test_without_a_model_it_is_plumb_doctor(tmp_path):
    plumb = tmp_path / "plumb"
    plumb.write_text("#!/bin/sh\necho called: $@\n")
    plumb.chmod(0o755)
    words = [sys.executable, "-m", "plumbline", "doctor"]
    called = subprocess.run(words, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (called.returncode, called.stdout) == (0, "called: doctor\n"), called.stderr
    plumb.unlink()
    without = subprocess.run(words, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True)
    assert without.returncode == 2 and "--model MODULE:FACTORY is missing" in without.stderr
    version = subprocess.run([*words[:3], "--version"], capture_output=True, text=True)
    assert (version.returncode, version.stdout) == (0, plumbline.__version__ + "\n"), version.stderr


class Parts(nn.Module):
    """A base, an adapter, an expert and a head. `cut`: the part that no gradient reaches; `unused`: the part that does not run."""

    def __init__(self, cut=None, unused=None, keyword=False):
        super().__init__()
        self.base, self.adapter, self.expert, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.cut, self.unused, self.keyword = cut, unused, keyword

    def _part(self, name, x):
        if name == self.unused:
            return 0 * x.detach()
        if name != self.cut:
            return getattr(self, name)(x)
        if name == "expert":
            with torch.no_grad():
                return self.expert(x)
        return getattr(self, name)(x).detach()

    def forward(self, x, labels=None):
        hidden = self.base(x)
        logits = self.head(hidden + self._part("adapter", hidden) + self._part("expert", hidden))
        if not self.keyword:
            return logits, {"hidden": [hidden.detach()]}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def backward(model, inputs):
    from plumbline import _doctor

    report = _doctor._Report()
    before = {name: p.clone() for name, p in model.named_parameters()}
    _doctor._gradients(report, model, inputs)
    assert all(p.grad is None and torch.equal(p, before[name]) for name, p in model.named_parameters())
    return report.missing


BATCHES = [torch.randn(4, 8), {"x": torch.randn(4, 8), "labels": torch.tensor([0, 1, 2, 0])}]


@pytest.mark.parametrize("keyword", [False, True])
@pytest.mark.parametrize("cut", [None, "adapter", "expert"])
def test_doctor_names_parameters_that_would_get_no_gradient(capsys, cut, keyword):
    missing = backward(Parts(cut, keyword=keyword), BATCHES[keyword])
    assert [what for what, _, _ in missing] == ([f"gradients of {cut}.weight, {cut}.bias"] if cut else [])
    assert f"{6 if cut else 8} of 8 trained parameters get one" in capsys.readouterr().out


@pytest.mark.parametrize("unused", ["adapter", "expert"])
def test_doctor_states_which_modules_did_not_run(capsys, unused):
    """An expert without a token is no fault."""
    assert backward(Parts(unused=unused), BATCHES[0]) == []
    assert f"none for {unused}.weight, {unused}.bias: these modules did not run" in capsys.readouterr().out


def test_doctor_of_a_model_whose_loss_has_no_path_back(capsys):
    model = Parts(keyword=True)
    model.register_forward_hook(lambda _module, _inputs, output: {"loss": torch.tensor(output["loss"].item())})
    ((what, _, _),) = backward(model, BATCHES[1])
    assert what == "gradients of base.weight, base.bias, adapter.weight and 5 more"


def test_doctor_of_a_backward_pass_that_fails(capsys):
    assert backward(Parts(), torch.randn(4, 9)) == []
    assert "not tested: " in capsys.readouterr().out


def test_doctor_of_a_frozen_base_with_a_trained_adapter(capsys):
    model = Parts()
    for part in (model.base, model.expert, model.head):
        part.requires_grad_(False)
    assert backward(model, BATCHES[0]) == []
    assert "2 of 2 trained parameters get one" in capsys.readouterr().out
