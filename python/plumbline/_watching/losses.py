"""The losses of a step. If each optimizer has its own backward passes (as a GAN's two have), the losses are not
added."""

import math


def numbered(name, number):
    """Returns the name of the series; the first one has the plain name."""
    return name if number == 0 else f"{name}.{number}"


class Losses:
    """The losses of a run's loop, from a backward pass to the end of the step in which an optimizer has used them."""

    def __init__(self):
        self.optimizers = {}  # id of an optimizer -> its number among the optimizers of the run
        self.apart = False  # whether each optimizer has its own losses; None: not known yet
        self.waiting = []  # losses of backward passes that no update has used
        self._used = {}  # number of an optimizer -> its losses of this step
        self._one, self._retired = False, {}
        self.series = "loss"  # the series of all optimizers together

    def join(self, optimizers, first):
        """first: the number of the first optimizer."""
        self.optimizers.update({id(o): first + k for k, o in enumerate(optimizers)})
        if len(self.optimizers) > 1 and not self.apart:
            self.apart = None
        self._one = len(self.optimizers) == 1 and not self.apart

    def leave(self, optimizers):
        for one in optimizers:
            self.optimizers.pop(id(one), None)
            self._retired.pop(id(one), None)
        self._one = len(self.optimizers) == 1 and not self.apart

    def retire(self, optimizers, series):
        """Called when these optimizers step no more. From then on, `series` contains the losses of the others."""
        gone = {id(o) for o in optimizers} & set(self.optimizers)
        if not gone or len(gone) == len(self.optimizers):
            return
        self._retired.update({of: self.optimizers.pop(of) for of in gone})
        self._one = len(self.optimizers) == 1
        self.apart = False if self._one else self.apart
        self.series = series

    def used(self, optimizer, after_others):
        """Called after the update of an optimizer. `after_others`: other optimizers have stepped in this step
        before."""
        if id(optimizer) in self._retired:  # a retired optimizer steps again
            self.optimizers[id(optimizer)] = self._retired.pop(id(optimizer))
            self._one, self.apart, self.series = False, None, "loss"
        if self._one:
            return
        if after_others and not self.apart:
            self.apart = bool(self.waiting)
        self._used.setdefault(self.optimizers[id(optimizer)], []).extend(self.waiting)
        self.waiting = []

    def drop(self):
        """Drops the waiting losses, because their gradients were cleared. Losses that are NaN or infinite stay."""
        self.waiting = [loss for loss in self.waiting if not math.isfinite(float(loss))]

    def take(self, carry):
        """Returns [(series, losses)] of the step that ends. `carry`: the waiting losses belong to the next one."""
        if self._one and not carry:  # the usual trainer has one optimizer
            values = [*(loss for losses in self._used.values() for loss in losses), *self.waiting] if self._used else self.waiting
            self._used, self.waiting = {}, []
            return [(self.series, values)] if values else []
        used, self._used = self._used, {}
        if not carry:
            used.setdefault(min(used, default=min(self.optimizers.values(), default=0)), []).extend(self.waiting)
            self.waiting = []
        if self.apart is False:
            used = {None: [loss for number in sorted(used) for loss in used[number]]}
        return [(self.series if n is None else numbered("partial_loss", n), losses) for n, losses in used.items() if losses]
