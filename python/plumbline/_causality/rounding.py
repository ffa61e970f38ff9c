"""Is a move rounding? The yardstick of one ulp, and the same runs in double."""

import contextlib

import torch

from .runs import distances
from .wide import NotWidened

LEAK = 2.0**-34  # a relative move above it in double is no rounding
_YARD = 4.0  # rounding moves at most this many times as far as one ulp at the embedding does
_FAR = 64.0  # for models that cannot run in double
_JITTERS = 3


@contextlib.contextmanager
def jittered(module, tokens, seed):
    """Moves each value that an embedding of the tokens returns by one ulp, up or down. Without an embedding, the
    parameters. Yields a list of the embeddings that ran."""
    generator, ran, hooks = torch.Generator().manual_seed(seed), [], []

    def jitter(value):
        if not value.is_floating_point():
            return value
        sign = torch.randint(0, 2, value.shape, generator=generator, dtype=torch.int8).to(value.device) * 2 - 1
        return value * (1 + sign.to(value.dtype) * torch.finfo(value.dtype).eps)

    def hook(one, inputs, out):
        if isinstance(out, torch.Tensor) and out.is_floating_point():
            ran.append(one)
            return jitter(out)
        return None

    for one in embeddings(module):
        hooks.append(one.register_forward_hook(hook))
    try:
        if not hooks and module is not None:
            with torch.no_grad():
                for p in module.parameters():
                    p.data.copy_(jitter(p.data))
        yield ran
    finally:
        for one in hooks:
            one.remove()


def embeddings(module):
    """Returns the modules that look up tokens: torch's, and those with a weight whose class is named so."""
    if module is None:
        return []
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return [one for one in module.modules() if isinstance(one, kinds) or (
        "Embedding" in type(one).__name__ and not list(one.children()) and isinstance(getattr(one, "weight", None), torch.Tensor))]  # fmt: skip


def yardstick(runs, base, tokens, rows):
    """Returns the largest relative move of `rows` (mask of the output) that one ulp at the embedding causes."""
    largest = 0.0
    for at in range(_JITTERS):
        out = runs.rows(tokens, extra=[jittered(runs.module, tokens, 31 + at)])
        far = distances(base, out)[rows.expand(base.shape[:2])]
        largest = max(largest, float(far.max()) if far.numel() else 0.0)
    return largest


class InDouble:
    """Runs in double with one base run per kind of widening. Raises NotWidened."""

    def __init__(self, runs):
        self._runs, self._bases = runs, {}
        self.noise = {}  # kind: the relative move between two base runs

    def base(self, kind):
        if kind not in self._bases:
            one, other = (self._runs.rows(self._runs.tokens, wide=kind) for _ in range(2))
            self.noise[kind] = float(distances(one, other).max())
            if self.noise[kind] > 2.0**-40:
                raise NotWidened(f"its repeats in double differ by {self.noise[kind]:.1e}")
            self._bases[kind] = one
        return self._bases[kind]

    def far(self, tokens, kind="all"):
        """Returns the relative move of each row [B,n]."""
        return distances(self.base(kind), self._runs.rows(tokens, wide=kind))


def is_single(runs, base):
    """Returns whether the model computes in fp32 only: its parameters and its output."""
    kinds = {p.dtype for p in runs.parameters if p.is_floating_point()} | {base.dtype}
    return kinds <= {torch.float32} and not torch.is_autocast_enabled()


class Judgement:
    """The class of a set of moves. `kind`: "leak", "rounding", "shared-scale", "heuristic" or "unclear"."""

    def __init__(self, kind, far, why="", wide=None):
        self.kind, self.far, self.why, self.wide = kind, far, why, wide


def judge(runs, double, base, attempts, exact=True):
    """Judges moved rows. attempts: [(tokens, mask of rows that must not move)], each moved a row of its mask.

    exact: base runs repeat to the bit. Returns (Judgement, index of the attempt that decided).
    """
    far = [float(distances(base, runs.rows(tokens))[mask.expand(base.shape[:2])].max()) for tokens, mask in attempts]
    order = sorted(range(len(far)), key=lambda at: -far[at])
    try:
        wide = {}
        for at in order:
            tokens, mask = attempts[at]
            wide[at] = float(double.far(tokens)[mask.expand(base.shape[:2])].max())
            if not wide[at] <= LEAK:
                return Judgement("leak", wide[at], wide="all"), at
        worst = order[0]
        yard = yardstick(runs, base, runs.tokens, attempts[worst][1])
        if not exact or far[worst] <= _YARD * yard:
            return Judgement("rounding", far[worst], f"it vanishes in double ({max(wide.values()):.1e}), and one ulp moves {yard:.1e}"), worst
        return _with_casts(runs, double, base, attempts, order, far, yard)
    except NotWidened as error:
        return _in_single(runs, base, attempts, order, far, str(error), exact)


def _with_casts(runs, double, base, attempts, order, far, yard):
    for at in order:
        tokens, mask = attempts[at]
        kept = float(double.far(tokens, "keep")[mask.expand(base.shape[:2])].max())
        if not kept <= LEAK:
            return Judgement("shared-scale", kept, wide="keep"), at
    why = f"rows moved by {far[order[0]]:.1e}, {far[order[0]] / max(yard, 1e-300):.0f} times as far as one ulp moves them, and not at all in double"
    return Judgement("unclear", far[order[0]], why), order[0]


def _in_single(runs, base, attempts, order, far, why, exact):
    worst = order[0]
    if exact and is_single(runs, base):
        yard = yardstick(runs, base, runs.tokens, attempts[worst][1])
        if not far[worst] <= _FAR * yard:
            return Judgement("heuristic", far[worst], f"not run in double: {why}"), worst
        return Judgement("unclear", far[worst], f"rows moved by {far[worst]:.1e}, one ulp moves them {yard:.1e}, and the model does not run in double: {why}"), worst
    return Judgement("unclear", far[worst], f"rows moved by {far[worst]:.1e}, and the model does not run in double: {why}"), worst


def message_of(error):
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"
