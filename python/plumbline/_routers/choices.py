"""Observes a router's own choice, if its operation is known, at little more than the cost of a hook.

A call that was observed completely shows which top-k or argmax is the choice, by the tensor from which it was taken.
In later calls a `Choices` observes only operations of these kinds. If they come in another order or along other axes,
the call took another path through the router, and its choice is not known.
"""

import functools
import sys

from .nodes import dim_of

_PRODUCTS = {"linear", "matmul", "mm", "addmm", "einsum", "__matmul__"}
_CHOOSE = {"topk", "argmax", "max", "sort", "argsort", "multinomial"}
_MOST = 32  # the most operations of one kind in one call


class Choices:
    """The choices of one call. `scores`: results of products with one value per expert; `made`: choices over an axis of that size."""

    def __init__(self, experts, gate=None):
        """gate: a module whose output counts as that of a product, no matter how it is computed."""
        self.experts, self.scores, self.made, self.operations, self.broken = experts, [], [], 0, False
        self._gate, self._undo = gate, []

    def __enter__(self):
        if self._gate is not None:
            self._undo.append(self._gate.register_forward_hook(lambda module, inputs, out: self._product(out)).remove)
        mode = _mode()(self)
        mode.__enter__()
        self._undo.append(lambda: mode.__exit__(None, None, None))
        return self

    def __exit__(self, *_):
        while self._undo:
            self._undo.pop()()

    def place(self):
        return len(self.scores), len(self.made)

    def between(self, begin, end):
        """Returns the Choices of the part that was observed between two positions."""
        part = Choices(self.experts)
        part.scores, part.made = self.scores[begin[0] : end[0]], self.made[begin[1] : end[1]]
        part.broken = self.broken
        return part

    def way(self):
        """Returns a key that is equal for two calls with the same path; None if an operation was lost."""
        if self.broken or max(self.place()) > _MOST:
            return None
        return len(self.scores), tuple((one.name, one.dim, one.like.dim()) for one in self.made)

    # ---- hearing ---------------------------------------------------------------------------------

    def note(self, name, args, kwargs, out):
        try:
            self._product(out) if name in _PRODUCTS else self._choice(name, args, kwargs, out)
        except Exception:  # no error of this package may end the trainer's step
            self.broken = True

    def _product(self, out):
        if not sys.modules["torch"].is_tensor(out) or out.dim() < 2 or out.shape[-1] != self.experts:
            return
        if len(self.scores) <= _MOST and not any(one is out for one, _ in self.scores):
            self.scores.append((out, out._version))

    def _choice(self, name, args, kwargs, out):
        if name == "max" and not isinstance(out, tuple):
            return
        like = args[0] if args else kwargs["input"]
        dim = like.dim() - 1 if name == "multinomial" else dim_of(name, args, kwargs)
        if dim is None or not like.dim() or like.shape[dim] != self.experts or len(self.made) > _MOST:
            return
        self.made.append(_Made(name, like, dim % like.dim(), out if sys.modules["torch"].is_tensor(out) else out[1]))


class _Made:
    """One top-k or argmax of `like`, along `dim`."""

    __slots__ = ("name", "like", "dim", "indices", "versions")

    def __init__(self, name, like, dim, indices):
        self.name, self.like, self.dim, self.indices = name, like, dim, indices
        self.versions = like._version, indices._version

    def columns(self):
        """Returns [T,n], or None if the tensor was written to since."""
        if self.indices._version != self.versions[1]:
            return None
        whole = self.indices.detach()
        if whole.dim() < self.like.dim():
            whole = whole.unsqueeze(self.dim)
        whole = whole.movedim(self.dim, -1)
        return whole.reshape(-1, whole.shape[-1])

    def rows(self):
        """Returns the tensor [T,E] from which it was taken, or None."""
        if self.like._version != self.versions[0]:
            return None
        return self.like.detach().movedim(self.dim, -1).reshape(-1, self.like.shape[self.dim])


@functools.lru_cache(maxsize=1)
def _mode():
    heard = _PRODUCTS | _CHOOSE

    class Mode(sys.modules["torch"].overrides.TorchFunctionMode):
        def __init__(self, choices):
            super().__init__()
            self._choices = choices

        def __torch_function__(self, function, types, arguments=(), options=None):
            out = function(*arguments, **(options or {}))
            self._choices.operations += 1
            name = getattr(function, "__name__", "")
            if name in heard:
                self._choices.note(name, arguments, options or {}, out)
            return out

    return Mode


class Recipe:
    """The positions, in one call, of the choice and of the scores that are recorded with it."""

    def __init__(self, way, picks, width, source):
        self._way, self._picks, self._width, self._source = way, picks, width, source

    def of(self, heard):
        """Returns (scores [T,E], choices [T,k]) of another call, or None: it took another path, or the tensors were
        overwritten."""
        if heard.way() != self._way:
            return None
        scores, columns = _scores(heard, self._source), [heard.made[at].columns() for at in self._picks]
        if scores is None or any(c is None for c in columns):
            return None
        chosen = columns[0] if len(columns) == 1 else sys.modules["torch"].cat(columns, dim=1)
        if len({len(scores), *map(len, columns)}) > 1 or chosen.shape[1] < self._width:
            return None
        return scores, chosen[:, : self._width]


def _scores(heard, source):
    kind, at = source
    if kind == "choice":
        return heard.made[at].rows()
    tensor, version = heard.scores[at]
    return tensor.detach().reshape(-1, tensor.shape[-1]) if tensor._version == version else None


def recipe(heard, taken, chosen, logits):
    """Returns a recipe from a call that was observed completely, or None. taken: its choices, as trace.Choice; chosen
    [T,k] and logits [T,E]: the recorded values. The recipe's result must equal them to the bit, else there is none."""
    torch, way, picks = sys.modules["torch"], heard.way(), []
    if way is None:
        return None
    for one in taken:
        at = [i for i, made in enumerate(heard.made) if made.like is one.node.tensor and made.name == one.op and i not in picks]
        if not at:
            return None
        picks.append(at[0])
    sources = [("score", i) for i in range(len(heard.scores))] + [("choice", i) for i in picks[:1]]
    for source in sources:
        recipe = Recipe(way, picks, chosen.shape[1], source)
        got = recipe.of(heard)
        if got is None or got[0].shape != logits.shape or not torch.equal(got[0].to(logits.dtype), logits):
            continue
        return recipe if torch.equal(got[1], chosen) else None
    return None
