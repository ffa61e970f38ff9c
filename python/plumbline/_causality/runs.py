"""Calls the model, selects the output that is judged, and compares rows as values."""

import contextlib
import inspect

import torch

from .axes import axes_of, flat_rows, order_of, watched
from .wide import NotWidened, Widened, default_double, widened_state


def modules_of(model):
    """Returns the modules that a callable holds: itself, its object, or those in its closure."""
    if isinstance(model, torch.nn.Module):
        return [model]
    found = [getattr(model, "__self__", None)]
    with contextlib.suppress(TypeError):
        known = inspect.getclosurevars(model)
        found += [*known.nonlocals.values(), *known.globals.values()]
    found += list(vars(model).values()) if hasattr(model, "__dict__") else []
    found += [getattr(model, "func", None)]  # functools.partial
    return list({id(one): one for one in found if isinstance(one, torch.nn.Module)}.values())


def leaves(value):
    """Returns the tensors of a nested output, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict) or hasattr(value, "items"):
        return [leaf for one in value.values() for leaf in leaves(one)]
    if isinstance(value, (list, tuple)):
        return [leaf for one in value for leaf in leaves(one)]
    return []


def select(output, which):
    """Returns the tensor that is judged."""
    if callable(which):
        return which(output)
    if isinstance(which, int) and not isinstance(output, torch.Tensor):
        return list(output.values() if hasattr(output, "values") else output)[which]
    if isinstance(which, str):
        return output[which] if isinstance(output, dict) else getattr(output, which)
    if isinstance(output, torch.Tensor):
        return output
    named = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
    if isinstance(named, torch.Tensor):
        return named
    floats = [one for one in leaves(output) if one.is_floating_point() and one.dim() > 1]
    return floats[0] if floats else None


class Shape(Exception):
    """The output has no rows that can be compared; the text states why."""


class Runs:
    """Runs one model on tokens [B,S]. Counts forward passes in `count`."""

    def __init__(self, model, module, state, dice, tokens, argument, inputs, which):
        self.model, self.module, self.state, self.dice = model, module, state, dice
        self.tokens, self.argument, self.inputs, self.which = tokens, argument, inputs, which
        self.batch, self.length = tokens.shape
        self.count, self.axes, self.modes = 0, None, []
        self.parameters = list(module.parameters()) if module is not None else []
        self.after_dice = None  # seeds the generators after they are restored

    def call(self, tokens, inputs=None):
        """Returns the model's whole output."""
        words = dict(self.inputs if inputs is None else inputs)
        if self.argument is None:
            return self.model(tokens, **words)
        return self.model(**{self.argument: tokens}, **words)

    @contextlib.contextmanager
    def prepared(self, wide=None, extra=()):
        """Restores the state, and enters the modes. wide: None, "all", or "keep" (casts to 16 and 8 bits round)."""
        self.state.restore()
        self.dice.restore()
        if self.after_dice is not None:
            self.after_dice()
        cached = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        with contextlib.ExitStack() as stack:
            stack.callback(torch.set_autocast_cache_enabled, cached)
            if wide is not None:
                stack.enter_context(widened_state(self.state, self.parameters))
                stack.enter_context(default_double())
            for mode in self.modes:
                stack.enter_context(mode())
            for one in extra:
                stack.enter_context(one)
            if wide is not None:
                stack.enter_context(Widened(wide == "keep"))
            yield

    def whole(self, tokens, wide=None, inputs=None, extra=(), grad=False):
        """Runs once; returns the whole output."""
        self.count += 1
        with self.prepared(wide, extra), torch.enable_grad() if grad else torch.no_grad():
            return self.call(tokens, self.inputs if inputs is None else inputs)

    def judged(self, tokens, wide=None, extra=(), inputs=None):
        """Runs once; returns the judged output, which is the model's tensor."""
        try:
            out = select(self.whole(tokens, wide, inputs, extra), self.which)
        except Exception as error:
            if wide is None:
                raise
            raise NotWidened(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
        if out is None:
            raise Shape("the model returned no floating-point tensor with two axes; name it with output=")
        if wide is not None and out.dtype not in (torch.float64, torch.complex128):
            raise NotWidened(f"the output is {str(out.dtype)[6:]} in a pass in double")
        return out.detach()

    def rows(self, tokens, wide=None, extra=()):
        """Runs once; returns the output's rows [B,n,…], a copy."""
        return self.rows_of(self.judged(tokens, wide, extra))

    def rows_of(self, out):
        if tuple(out.shape) != self.shape:
            raise Shape(f"the output's shape depends on the tokens: {list(self.shape)} and {list(out.shape)}")
        return flat_rows(out, self.axes, self.batch, self.length).clone()

    def mask(self, where):
        """Returns bool [B,S] as a mask of the rows that rows() returns."""
        return watched(where, self.axes, None).to(self.tokens.device)

    # ---- axes ----------------------------------------------------------------------------------

    def variants(self):
        """Returns [(tokens, inputs)] of another length and another batch."""
        fewer = self.length - 1 if self.length > 2 else self.length + 1
        other = self.tokens[:, :fewer] if fewer < self.length else torch.cat([self.tokens, self.tokens[:, :1]], 1)
        more = torch.cat([self.tokens, self.tokens[:1]])
        return [(other, self._resized(1, self.length, fewer)), (more, self._resized(0, self.batch, self.batch + 1))]

    def _resized(self, axis, size, to):
        """Returns the inputs for another length (axis 1) or batch (axis 0)."""

        def change(value):
            if not torch.is_tensor(value):
                return value
            for a in range(value.dim()) if axis else range(min(1, value.dim())):
                if value.shape[a] == size and (not axis or a > 0 or value.dim() == 1):
                    at = torch.arange(to).clamp(max=size - 1).to(value.device)
                    value = value.index_select(a, at)
            return value

        return {name: change(value) for name, value in self.inputs.items()}

    def find_axes(self, suffixes):
        """Finds the axes of the judged output. Raises Shape."""
        out = self.judged(self.tokens)
        self.shape, shapes = tuple(out.shape), []
        for tokens, inputs in self.variants():
            try:
                shapes.append(tuple(self.judged(tokens, inputs=inputs).shape))
            except Shape:
                raise
            except Exception:  # a model of one fixed length
                shapes.append(None)
        self.axes = axes_of(self.shape, *shapes, self.size())
        if self.axes is None:
            raise Shape(f"the output of shape {list(self.shape)} has not exactly one token axis; select another with output=")
        if self.axes.flat and self.batch > 1:
            first = torch.zeros(self.batch, dtype=torch.bool)
            first[0] = True
            changed = self.judged(suffixes.sequence(first, 1))
            if tuple(changed.shape) == self.shape:
                self.axes = order_of(out, changed, self.axes, self.batch, self.length, 0)
        if self.axes.batch is None and self.batch > 1:
            raise Shape(f"the output of shape {list(self.shape)} has no batch axis")

    def size(self):
        fewer = self.length - 1 if self.length > 2 else self.length + 1
        return self.batch, self.length, self.batch + 1, fewer


# ---- comparison ---------------------------------------------------------------------------------


def moved(base, other):
    """Returns the rows (bool [B,n]) that differ as values: -0 equals +0, NaN equals NaN."""
    return ~((base == other) | (base.isnan() & other.isnan())).all(2)


def distances(base, other):
    """Returns the relative move of each row [B,n]: its largest difference over its largest value. Infinite if one of
    two values is not finite."""
    same = (base == other) | (base.isnan() & other.isnan())
    size = lambda t: t.abs() if t.is_complex() else t.double().abs()
    gap = torch.where(same, torch.zeros_like(size(base)), size(base - other if base.is_complex() else base.double() - other.double()))
    gap = torch.where(gap.isnan(), torch.full_like(gap, float("inf")), gap)
    scale = torch.where(size(base).isfinite(), size(base), torch.zeros_like(gap)).amax(2)
    floor = scale.max() * 1e-3
    return gap.amax(2) / torch.maximum(scale, floor.clamp(min=1e-300))


def unclear(base):
    """Returns the rows that hold only NaN or infinite values: nothing moves in them."""
    return ~base.isfinite().any(2)
