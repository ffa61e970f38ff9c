"""Routers of router_kinds.py under watch: their requests to a run, and the calls of a forward pass."""

from types import SimpleNamespace

import torch
from torch import nn

import router_kinds
from plumbline._routers import watched as routers_watched
from router_kinds import KINDS, Model

TOKENS_CHOOSE = ["mixtral", "switch", "deepspeed-rts", "deepspeed-top2", "megatron", "megatron-probs", "megatron-position", "megatron-bias",
                 "noisy", "noisy-capacity", "score-drop", "score-drop-map", "group-limited", "sinkhorn"]  # fmt: skip
EXPERTS_CHOOSE = ["expert-choice", "expert-choice-rows", "expert-choice-sequence", "expert-choice-sort"]


class Run:
    """The requests of routers to a run."""

    def __init__(self):
        self._step, self._spent, self._due, self._sites = 0, 0, {}, {}
        self.calls, self.warnings, self.running = [], [], False
        self._budget = SimpleNamespace(governed=False, every=1)

    def observe_routing(self, layer, **known):
        self.calls.append((layer, known))

    def _warn_once(self, key, text):
        self.warnings.append(text)


def watched(model):
    run = Run()
    return run, routers_watched.Routers(run, model, lambda body, *a: body(*a), lambda: run.running)


def heard(model, *given, **named):
    """The calls of one forward pass of a step."""
    run, routers = watched(model)
    routers.forward(True, (*given, *named.values()))
    model(*given, **named)
    routers.step_ends()
    routers.remove()
    return run.calls, run.warnings, routers.describe()


def ids(batch=8, length=32, seed=3):
    return torch.randint(0, 64, (batch, length), generator=torch.Generator().manual_seed(seed))


def made(kind, seed=1):
    torch.manual_seed(seed)
    return Model(KINDS[kind]) if isinstance(kind, str) else Model(kind)


def truth(model, layer):
    return next(m.true for m in dict(model.named_modules())[layer].modules() if hasattr(m, "true"))


class Moved(router_kinds.TopKRouter):
    """This batch changes the bias before the bias is used."""

    def forward(self, x):
        with torch.no_grad():
            load = torch.sigmoid(nn.functional.linear(x, self.weight)).flatten(0, 1).mean(0)
            self.expert_bias -= 0.1 * (load - load.mean()).sign()
        return super().forward(x)
