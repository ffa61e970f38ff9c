"""All that this trainer reports to Plumbline, in one place."""

import contextlib
import os
import sys


class Silent:
    """Replaces the probes if there are none."""

    def step(self, number):
        return contextlib.nullcontext()

    def scalar(self, name, value):
        pass

    def span(self, kind, name=None):
        return contextlib.nullcontext()

    def reducing(self, name, tensor):
        return contextlib.nullcontext()

    def hook(self, hook):
        return hook

    def due(self, kind, layer):
        return False

    def update(self, *_, **__):
        pass

    def sum(self, *_):
        pass

    def weights(self, model):
        pass

    def activations(self, model):
        pass

    def finish(self):
        pass


class Probes:
    """Sends what happens in each step to the analysis server, to a record on disk, or both."""

    def __init__(self, run, server=None, record=None, watch=(), budget=None,
                 patience=2.0):
        """watch: "updates", "averages", "gradients", "weights", "activations", in addition to hooks."""
        self._run = import_plumbline().init(run=run, server=server, record=record, budget=budget)
        self._watch, self._patience = set(watch), patience
        self.step, self.scalar, self.span = self._run.step, self._run.scalar, self._run.span
        self.hook, self.reducing = self._run.observed, self._run.reducing

    def due(self, kind, layer):
        """Returns True if an update of this kind, "updates", "averages" or "gradients", is due now."""
        return kind in self._watch and self._run.due(
            layer, "accumulation" if kind == "gradients" else "update")

    def update(self, layer, before, after, intended, **facts):
        self._run.observe_update(layer, before, after, intended, **facts)

    def sum(self, layer, before, after, addend):
        """Reports that one micro-batch's gradient was added to a running sum."""
        self._run.observe_accumulation(layer, before, after, addend)

    def weights(self, model):
        """Reports the weights, whose digests are compared: every rank holds the same."""
        if "weights" in self._watch:
            self._run.observe_parameters(model, replicas="world")

    def activations(self, model):
        """Reports every module's output."""
        if "activations" in self._watch:
            for name, module in model.named_children():
                module.register_forward_hook(
                    lambda _, __, output, name=name: self._run.observe_tensor(
                        name, output.detach(), role="activation"))

    def finish(self):
        self._run.finish(self._patience)


def import_plumbline():
    try:
        import plumbline
    except ModuleNotFoundError:
        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
        import plumbline
    return plumbline
