"""Code that the callbacks of frameworks share: a run that opens when the training begins, and calls whose errors never
end the training."""

import functools
import math
import os
import sys

from ._open import init
from ._stopping import checked


def named(folder, options, name=None):
    """Returns init's arguments. Without a server and a record, the record is in `folder`. `name`: the framework's own
    name of the run."""
    options = dict(options)
    folder = os.path.abspath(folder or ".")
    if not (options.get("server") or options.get("record") or os.environ.get("PLUMBLINE_SERVER") or os.environ.get("PLUMBLINE_RECORD")):
        options["record"] = os.path.join(folder, "plumbline")
    if not (options.get("run") or os.environ.get("PLUMBLINE_RUN")):
        options["run"] = os.path.basename(os.path.normpath(name or folder))
    return options


def guarded(method):
    """No error of this package may end the trainer's step: an exception is reported once."""

    @functools.wraps(method)
    def call(self, *arguments, **options):
        try:
            return method(self, *arguments, **options)
        except Exception as error:
            text = f"{method.__name__}: {error!r}"
            if text not in self._failed:
                self._failed.add(text)
                print(f"plumbline: {type(self).__name__}.{text} (printed once; the trainer continues)", file=sys.stderr)
            return None

    return call


class Session:
    """The run of one callback, over all trainings of its trainer."""

    def __init__(self, options):
        checked(options.get("stop_on"))
        self._options, self._attempt = options, options.get("attempt")
        self.run, self._watched, self._pair, self._settings = None, None, None, {}

    def begin(self, folder, name, model, optimizers, scaler=None, step=0, made=0):
        """Called when a training begins. Its next step has the number `step`; the framework has counted `made` steps.

        A training that starts again from an earlier step is another attempt.
        """
        if self.run is not None and step < getattr(self.run, "_following", int)():
            self.run.finish()
            self.run, self._attempt = None, (self._attempt or 0) + 1
        if self.run is None:
            options = named(folder, self._options, name)
            self.run = init(**options if self._attempt is None else {**options, "attempt": self._attempt})
            self.run._made_before = made
            if getattr(self.run, "_stopping", None) is not None:
                self.run._stopping.checked = True  # the callback ends the training
            self.end()
        if hasattr(self.run, "_next_step"):
            self.run._next_step = max(step, self.run._following())
        pair = (model, *optimizers)
        if self._watched is None or len(pair) != len(self._pair) or any(a is not b for a, b in zip(pair, self._pair)):
            self.end()
            self._watched, self._pair = self.run.watch(model, list(optimizers), scaler=scaler), pair

    def settings(self, values):
        """Keeps the trainer's own settings (numbers and switches). The first step records them as `settings/NAME`."""
        self._settings = values

    def record_settings(self):
        """Records the kept settings in the open step, once."""
        values, self._settings = self._settings, {}
        for name, value in values.items():
            if isinstance(value, (bool, int, float)):
                self.run._own_scalar(f"settings/{name}", float(value))

    def stops(self, step):
        """Returns whether a finding of the level that stop_on names ends the training after this step."""
        return self.run is not None and self.run._stops(step)

    def scalars(self, metrics, prefix=""):
        """Records the numbers of a dictionary in the open step."""
        light = getattr(self.run, "_light", None)
        if metrics and light is not None:
            light.open()
        for name, value in (metrics or {}).items():
            if hasattr(value, "numel") and value.numel() != 1:
                continue
            try:
                number = float(value)
            except (TypeError, ValueError):
                continue
            self.run.scalar(f"{prefix}{name}", number if not math.isnan(number) else math.nan)

    def end(self):
        """Called when the training has ended: removes the hooks, and keeps the run for another training."""
        watched, self._watched, self._pair = self._watched, None, None
        if watched is not None:
            watched.remove()
