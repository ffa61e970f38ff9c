"""The losses of a step. If each optimizer has its own backward passes (as a GAN's two have), the losses are not
added. A loss may be no single scalar: backward is given a gradient, which weights its elements."""

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


class Weighted:
    """Returns the loss among the tensors and gradients with which backward is called."""

    _small = 4096  # the most elements that are checked in each pass: for more, the result of the first pass counts
    _known = {}  # number of dimensions -> whether it is a loss

    @classmethod
    def loss(cls, tensor, given):
        """Returns a scalar, the weighted elements; or None. Weights of both signs are gradients of an activation, as
        a stage of a pipeline gets them."""
        if not hasattr(tensor, "numel"):
            return None
        if given is None:
            return tensor if tensor.numel() == 1 else None
        try:
            return cls._sum(tensor, given)
        except Exception:  # backward itself raises the error
            return None

    @classmethod
    def _sum(cls, tensor, given):
        if tensor.shape != given.shape or not tensor.is_floating_point() or not tensor.numel():
            return None
        small = tensor.numel() <= cls._small and given.device.type == "cpu"
        one_sign = True if tensor.numel() == 1 else None if small else cls._known.get(tensor.dim())
        if one_sign is None:
            low, high = float(given.detach().min()), float(given.detach().max())
            one_sign = low >= 0 or high <= 0
            if low != high or low != 0:  # a batch that is masked completely shows nothing
                cls._known[tensor.dim()] = one_sign
        return (tensor.detach() * given.detach()).sum() if one_sign else None
