"""The gradient of a random functional of the outputs before a cut, at the outputs of the embedding after it."""

import torch

from .axes import flat_rows
from .rounding import embeddings
from .runs import select


def future_gradient(runs, must, changed):
    """Returns the largest gradient at the embedding's output of tokens `changed` (bool [B,S]), relative to the largest
    gradient at all tokens, of outputs at the rows `must`. None if it cannot be computed."""
    kept, hooks = [], []

    def hook(one, inputs, out):
        if torch.is_tensor(out) and out.requires_grad and not kept:
            kept.append(out)

    for one in embeddings(runs.module):
        hooks.append(one.register_forward_hook(hook))
    try:
        out = select(runs.whole(runs.tokens, grad=True), runs.which)
        values = flat_rows(out, runs.axes, runs.batch, runs.length)
        weights = torch.randn(values.shape, generator=torch.Generator().manual_seed(5)).to(values)
        functional = (values * weights)[runs.mask(must).expand(values.shape[:2])].sum()
        (found,) = torch.autograd.grad(functional, kept[:1])
        if found.shape[:2] != runs.tokens.shape:
            return None
        size = found.detach().abs().flatten(2).amax(2).double().cpu()
        whole = float(size.max())
        return float(size[changed].max()) / whole if whole > 0 else None
    except Exception:  # a model without gradients, or one that detaches
        return None
    finally:
        for one in hooks:
            one.remove()
