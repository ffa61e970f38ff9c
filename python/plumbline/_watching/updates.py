"""Updates of an optimizer that is watched: some elements before its step, after it, and what was meant."""

import sys

from .. import _intended
from .._kinds import KIND_UPDATE
from .._tensors import local

_MOST = 1 << 15  # elements of one parameter: of a larger one a block, another one at each step
_STRIDE = 7919
_MOMENTS = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")


class _Kept:
    """One parameter whose site is due, before the step."""

    __slots__ = ("name", "parameter", "group", "block", "before", "gradient", "moment")

    def __init__(self, name, parameter, group, step, moment, scale):
        self.name, self.parameter, self.group = name, parameter, group
        first = step * _STRIDE % max(1, local(parameter).numel() - _MOST + 1)
        self.block = slice(first, first + _MOST)
        self.before = self.of(parameter).clone()
        self.gradient = self.of(parameter.grad).clone() if scale == 1 else self.of(parameter.grad) / scale
        self.moment = None if moment is None else self.of(moment).clone()

    def of(self, tensor):
        return local(tensor).detach().reshape(-1)[self.block]


class Updates:
    """One optimizer's."""

    def __init__(self, run, optimizer, names):
        self._run, self._optimizer, self._names = run, optimizer, names
        self.kind = _intended.kind_of(optimizer)
        self.kept = []  # of the step that is being made
        self._word = None

    def _parameters(self):
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                name = self._names.get(id(parameter))
                if name is not None:
                    yield name, parameter, group

    def due(self, step):
        return self.kind is not None and (self._word is None or step >= self._word[0])

    def before(self, scale=1.0):
        """In front of the optimizer's step. Nothing is kept where no site is due. `scale`: by which the gradients are too large."""
        self.kept = []
        if not self.due(self._run._step):
            return
        for name, parameter, group in self._parameters():
            if parameter.grad is None or parameter.grad.is_sparse or not parameter.is_floating_point():
                continue
            if not local(parameter).numel():  # other ranks hold all of it
                continue
            if self._run.due(name):
                moment = self._optimizer.state.get(parameter, {}).get("exp_avg_sq")
                self.kept.append(_Kept(name, parameter, group, self._run._step, moment, scale))
            if self._word is None:  # all are due at the same steps
                self._word = self._run._site(KIND_UPDATE, name, "update").word

    def observe_moments(self):
        """As the step found them: was it one of them that made a weight no number?"""
        torch = sys.modules["torch"]
        for name, parameter, _ in self._parameters():
            held = self._optimizer.state.get(parameter, {})
            for moment in _MOMENTS:
                if torch.is_tensor(held.get(moment)) and local(held[moment]).numel():
                    self._run._observe_state(name, held[moment], moment)

    def after(self):
        kept, self.kept = self.kept, []
        with self._run.together():
            for one in kept:
                self._observe(one)

    def _observe(self, one):
        torch = sys.modules["torch"]
        held = self._optimizer.state.get(one.parameter, {})
        state = {name: one.of(held[name]).double() for name in _MOMENTS if torch.is_tensor(held.get(name))}
        state["step"] = held.get("step", 0)
        if self.kind == "sgd" and one.group["momentum"] and "momentum_buffer" not in state:
            return  # it has not moved this parameter
        if self.kind != "sgd" and "exp_avg" not in state:
            return
        meant = _intended.intended(self.kind, one.group, state, one.before.double(), one.gradient.double())
        moments = {}
        if self.kind != "sgd" and one.moment is not None:
            moments = {"moment_before": one.moment, "beta2": float(one.group["betas"][1]), "eps": float(one.group["eps"]),
                       "moment_after": one.of(held["exp_avg_sq"])}  # fmt: skip
        self._run.observe_update(
            one.name, one.before, one.of(one.parameter), meant, gradient=one.gradient, optimizer=self.kind,
            lr=float(one.group["lr"]), **moments,
        )  # fmt: skip
