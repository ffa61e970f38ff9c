"""One forward pass, call by call: shapes, and a sketch of each row of what enters and leaves each module."""

import contextlib
import threading

import torch

from .axes import axes_of, flat_rows, order_of, put_rows, watched
from .runs import leaves

_PROJECTIONS = 3


class Call:
    """The n-th call of a module in a pass. inputs, outputs: [leaf]: a shape, or a sketch [B,n,4], or None."""

    __slots__ = ("children", "inputs", "key", "outputs")

    def __init__(self, key):
        self.key, self.children, self.inputs, self.outputs = key, [], [], []


def sketch(tensor, axes, batch, length, keys):
    """Returns doubles [B,n,4]: three projections of each row and its norm. Non-finite values count as fixed numbers."""
    value = flat_rows(tensor.detach(), axes, batch, length)
    if value.is_complex():
        value = torch.view_as_real(value).flatten(2)
    value = torch.nan_to_num(value.double(), nan=3.25, posinf=5.5, neginf=-7.75)
    width = value.shape[2]
    if width not in keys:
        keys[width] = _projection(width)
    norm = torch.linalg.vector_norm(value, dim=2, keepdim=True)
    return torch.cat([value @ keys[width].to(value.device), norm], 2)


def _projection(width):
    """Returns fixed numbers [width,3] in (-1,1). No random operation, because those of the model are counted."""
    phase = torch.arange(1, width * _PROJECTIONS + 1, dtype=torch.float64).reshape(width, _PROJECTIONS)
    return 2 * torch.remainder(torch.sin(phase * 12.9898) * 43758.5453, 1.0) - 1


class Tracer:
    """Traces passes of one model. names: {id(module): name}."""

    def __init__(self, runs):
        self.runs, self.layouts, self._keys = runs, {}, {}
        self.names = {}
        root = runs.module
        for name, module in root.named_modules():
            self.names.setdefault(id(module), name)

    # ---- layouts -------------------------------------------------------------------------------

    def learn(self, suffixes):
        """Finds the axes of each tensor, from the shapes of passes with another length and another batch."""
        base = self._shapes(self.runs.tokens, None)
        variants = []
        for tokens, inputs in self.runs.variants():
            try:
                variants.append(self._shapes(tokens, inputs))
            except Exception:  # a model of one fixed length
                variants.append(None)
        size = self.runs.size()
        for place, shape in base.items():
            axes = axes_of(shape, *(None if v is None else v.get(place, ()) for v in variants), size)
            if axes is not None:
                self.layouts[place] = axes
        self._learn_order(suffixes)

    def _shapes(self, tokens, inputs):
        found = {}

        def note(key, side, tensors):
            found.update({(key, side, at): tuple(one.shape) for at, one in enumerate(tensors)})

        self._pass(tokens, _Hooks(self, note), inputs)
        return found

    def _learn_order(self, suffixes):
        flat = {place for place, axes in self.layouts.items() if axes.flat}
        if not flat:
            return
        if self.runs.batch == 1:
            return
        kept = []

        def keep(key, side, tensors):
            kept[-1].update({(key, side, at): one.detach().clone() for at, one in enumerate(tensors) if (key, side, at) in flat})

        first = torch.zeros(self.runs.batch, dtype=torch.bool)
        first[0] = True
        for tokens in (self.runs.tokens, suffixes.sequence(first, 1)):
            kept.append({})
            self._pass(tokens, _Hooks(self, keep))
        for place in flat:
            one, other = kept[0].get(place), kept[1].get(place)
            if one is None or other is None or one.shape != other.shape:
                del self.layouts[place]
            else:
                self.layouts[place] = order_of(one, other, self.layouts[place], self.runs.batch, self.runs.length, 0)

    # ---- passes --------------------------------------------------------------------------------

    def trace(self, tokens, wide=None, patches=None, capture=None):
        """Returns (root Call, {place: tensor} of the outputs of the calls in `capture`).

        patches: {key: ({place: tensor of the base run}, rows bool [B,S])}.
        """
        captured = {}
        batch, length = self.runs.batch, self.runs.length

        def note(key, side, tensors):
            found = []
            for at, one in enumerate(tensors):
                axes = self.layouts.get((key, side, at))
                fits = axes is not None and one.dim() > axes.token
                found.append(sketch(one, axes, batch, length, self._keys) if fits else None)
                if capture is not None and side == "out" and key in capture:
                    captured[(key, side, at)] = one.detach().clone()
            return found

        hooks = _Hooks(self, note, patches or {})
        self._pass(tokens, hooks, None, wide)
        return hooks.root, captured

    def _pass(self, tokens, hooks, inputs=None, wide=None):
        self.runs.whole(tokens, wide=wide, inputs=inputs, extra=[hooks.placed()])

    def patched(self, output, key, patch):
        """Returns `output` with rows of the base run."""
        base, where = patch
        counter = iter(range(1 << 30))

        def change(value):
            if isinstance(value, torch.Tensor):
                place = (key, "out", next(counter))
                axes, old = self.layouts.get(place), base.get(place)
                if axes is None or old is None or old.shape != value.shape:
                    return value
                return put_rows(value, old.to(value.dtype), axes, where, self.runs.batch, self.runs.length)
            if isinstance(value, dict):
                items = {name: change(one) for name, one in value.items()}
                with contextlib.suppress(Exception):
                    return type(value)(items) if type(value) is dict else type(value)(**items)
                return items
            if isinstance(value, tuple) and hasattr(value, "_fields"):
                return type(value)(*(change(one) for one in value))
            return type(value)(change(one) for one in value) if isinstance(value, (list, tuple)) else value

        return change(output)


class _Hooks:
    """Replaces torch.nn.Module.__call__ for the calls of one thread."""

    def __init__(self, tracer, note, patches=None):
        self._tracer, self._note, self._patches = tracer, note, patches or {}
        self._counts, self._stack = {}, [Call(("", -1))]
        self._thread = threading.get_ident()

    @property
    def root(self):
        return self._stack[0]

    @contextlib.contextmanager
    def placed(self):
        original = torch.nn.Module.__call__
        hooks = self

        def __call__(self, *args, **words):
            name = hooks._tracer.names.get(id(self))
            if name is None or threading.get_ident() != hooks._thread:
                return original(self, *args, **words)
            return hooks._called(original, self, name, args, words)

        torch.nn.Module.__call__ = __call__
        try:
            yield
        finally:
            torch.nn.Module.__call__ = original

    def _called(self, original, module, name, args, words):
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        call = Call((name, number))
        self._stack[-1].children.append(call)
        with torch.no_grad(), _plainly():
            call.inputs = self._note(call.key, "in", leaves((args, words)))
        self._stack.append(call)
        try:
            out = original(module, *args, **words)
        finally:
            self._stack.pop()
        patch = self._patches.get(call.key)
        with torch.no_grad(), _plainly():
            if patch is not None:
                out = self._tracer.patched(out, call.key, patch)
            call.outputs = self._note(call.key, "out", leaves(out))
        return out


@contextlib.contextmanager
def _plainly():
    """Leaves the modes of dispatch and of functions: what is computed here is not the model's."""
    with contextlib.ExitStack() as stack:
        dispatch = getattr(torch.utils._python_dispatch, "_disable_current_modes", None)
        if dispatch is not None:
            stack.enter_context(dispatch())
        yield


def differs(one, other, axes, where, tolerance):
    """Returns whether watched rows of two sketches differ by more than `tolerance` of their norm."""
    if one is None or other is None or one.shape != other.shape:
        return False
    mask = watched(where, axes, None).to(one.device)
    if mask.shape[1] < one.shape[1]:
        mask = torch.nn.functional.pad(mask, (0, one.shape[1] - mask.shape[1]))
    mask = mask[:, : one.shape[1]].expand(one.shape[:2])
    gap = (one - other).abs().amax(2)
    scale = torch.maximum(one[..., 3], one[..., 3].max() * 1e-3).clamp(min=1e-300)
    return bool((~(gap <= tolerance * scale) & mask).any())

