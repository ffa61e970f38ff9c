"""Finds modules with dropout or batch norm that are trained in eval mode: the evidence of health/eval-mode."""

import sys

_MOST, _MOST_NAMES = 256, 8


def _drops(module):
    """Returns whether the module has its own dropout, as attention and recurrent layers do."""
    nn = sys.modules["torch"].nn
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    rate = getattr(module, "dropout", None) if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)) else None
    return isinstance(rate, float) and rate > 0


def _norms(module):
    return isinstance(module, sys.modules["torch"].nn.modules.batchnorm._BatchNorm) and module.running_mean is not None


class Modes:
    """Checks the train and eval modes of one watch's modules."""

    def __init__(self, run, model, prefix, trained):
        """trained: names of the trained parameters, with the prefix."""
        self._run, self._model = run, model
        holders = {""}
        for name in trained:
            at = name[len(prefix) :]
            while at:
                at = at.rpartition(".")[0]
                holders.add(at)
        self.modules = [
            (prefix + name, module, _drops(module)) for name, module in model.named_modules()
            if (_drops(module) or _norms(module)) and (name.rpartition(".")[0] in holders or name in holders)
        ][:_MOST]  # fmt: skip
        self._trained = set()  # ids of modules that were in train mode in a backward pass
        self._now, self._reported, self._begun = (), None, False

    def backward_begins(self):
        """Called in the first pass of a step."""
        now = [one for one in self.modules if not one[1].training]
        if len(self._trained) < len(self.modules):
            self._trained.update(id(module) for _, module, _ in self.modules if module.training)
        self._now = [one for one in now if id(one[1]) in self._trained] if now else ()
        self._begun = True

    def step_ends(self):
        """Called after an update, in the open step."""
        if not self._begun:
            return
        record, now, self._begun = self._run._own_scalar, self._now, False
        if self._reported is None:
            record("trained/modes", len(self.modules))
        if now:
            record("trained/eval", len(now))
            record("trained/eval_whole", not self._model.training or any(drops for _, _, drops in now))
            if self._reported != len(now):
                for name, _, _ in now[:_MOST_NAMES]:
                    record(f"trained/eval:{name}", 1)
        elif self._reported != 0:
            record("trained/eval", 0)
        self._reported = len(now)
