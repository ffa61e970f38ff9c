"""Updates of a watched optimizer: some elements before its step, after it, and the intended values."""

import sys

from .. import _intended
from .._kinds import KIND_UPDATE
from .._shards import own_gradient
from .._tensors import local

_MOST = 1 << 15  # the most elements of one parameter; of a larger parameter, each step takes a different block
_STRIDE = 7919
_MOMENTS = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")


class _Kept:
    """The values of one parameter before the step, if its site is due."""

    __slots__ = ("name", "parameter", "group", "block", "before", "gradient", "moment", "piece")

    def __init__(self, name, parameter, group, step, moment, scale, piece=None):
        """`parameter`: the one that the optimizer holds. `piece`: the part of it that is measured."""
        self.name, self.parameter, self.group, self.piece = name, parameter, group, piece
        first = step * _STRIDE % max(1, self._all_of(parameter).numel() - _MOST + 1)
        self.block = slice(first, first + _MOST)
        self.before = self.of(parameter).clone()
        held = own_gradient(parameter) if piece is None else None
        gradient = self.of(held) if held is not None else piece.grad[self.block]
        self.gradient = gradient.clone() if scale == 1 else gradient / scale
        self.moment = None if moment is None else self.of(moment).clone()

    def _all_of(self, tensor):
        return local(tensor).detach().reshape(-1) if self.piece is None else self.piece.of(local(tensor))

    def of(self, tensor):
        return self._all_of(tensor)[self.block]


class Updates:
    """The updates of one optimizer."""

    def __init__(self, run, optimizer, names, pieces=()):
        """names: {id of a parameter: name}. pieces: the tensors that the optimizer holds in the place of parameters."""
        self._run, self._optimizer, self._names, self._pieces = run, optimizer, names, {}
        for piece in pieces:
            if id(piece.parameter) in names:
                self._pieces.setdefault(id(piece.held), []).append((names[id(piece.parameter)], piece))
        self.kind = _intended.kind_of(optimizer)
        self.kept = []  # the parameters kept in the step in progress
        self._word = None

    def _parameters(self):
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self._pieces:
                    for name, piece in self._pieces[id(parameter)]:
                        yield name, parameter, group, piece
                elif id(parameter) in self._names:
                    yield self._names[id(parameter)], parameter, group, None

    def due(self, step):
        return self.kind is not None and (self._word is None or step >= self._word[0])

    def before(self, scale=1.0, requested=False, chosen=None):
        """Called before the optimizer's step. If no site is due, keeps nothing. `scale`: the factor by which the
        gradients are too large.

        `asked`: the caller knows that some parameters are due. `chosen`: names of the parameters that are measured;
        None: all that are due.
        """
        self.kept = []
        if not requested and chosen is None and not self.due(self._run._step):
            return
        for name, parameter, group, piece in self._parameters():
            if chosen is not None and name not in chosen:
                continue
            gradient = own_gradient(parameter) if piece is None else piece.grad
            if gradient is None or gradient.is_sparse or not parameter.is_floating_point():
                continue
            if not local(parameter).numel():  # other ranks hold all elements of this parameter
                continue
            if self._run.due(name):
                moment = self._optimizer.state.get(parameter, {}).get("exp_avg_sq")
                self.kept.append(_Kept(name, parameter, group, self._run._step, moment, scale, piece))
            if self._word is None:  # all parameters are due at the same steps
                self._word = self._run._site(KIND_UPDATE, name, "update").word

    def observe_moments(self):
        """Observes the moments before the update, to find whether one of them made a weight NaN."""
        torch = sys.modules["torch"]
        for name, parameter, _, piece in self._parameters():
            held = self._optimizer.state.get(parameter, {})
            for moment in _MOMENTS:
                if torch.is_tensor(held.get(moment)) and local(held[moment]).numel():
                    self._run._observe_state(name, held[moment] if piece is None else piece.of(held[moment]), moment)

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
            return  # the step has not changed this parameter
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
