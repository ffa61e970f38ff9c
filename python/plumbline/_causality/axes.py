"""Which axes of a tensor are the token axis and the batch axis."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Axes:
    """token, batch: axes, or None. `flat`: one axis holds both, then `by_batch` is its order (b·S + s, else s·B + b).

    `shift`: rows of the token axis minus tokens.
    """

    token: int
    batch: int = None
    flat: bool = False
    by_batch: bool = True
    shift: int = 0


def axes_of(base, longer, wider, size):
    """Returns Axes or None. base, longer, wider: shapes at (B,S), (B,S'), (B',S), the last two or None.

    size: (B, S, B', S').
    """
    batch, length, more, other = size
    if longer is None and wider is None:
        return _by_size(base, batch, length)
    if any(one is not None and len(one) != len(base) for one in (longer, wider)):
        return None
    with_token = [] if longer is None else [a for a in range(len(base)) if base[a] != longer[a]]
    with_batch = [] if wider is None else [a for a in range(len(base)) if base[a] != wider[a]]
    if longer is None:
        with_token = [a for a in range(len(base)) if base[a] == length and a not in with_batch]
    if wider is None and batch > 1:
        with_batch = [a for a in range(len(base)) if base[a] == batch and a not in with_token]
    if len(with_token) != 1 or len(with_batch) > 1:
        return None
    return _checked(base, longer, wider, size, with_token[0], with_batch)


def _checked(base, longer, wider, size, token, with_batch):
    batch, length, more, other = size
    if with_batch == [token] or (wider is None and batch > 1 and base[token] == batch * length):
        fits = base[token] == batch * length and (longer is None or longer[token] == batch * other)
        fits = fits and (wider is None or wider[token] == more * length)
        return Axes(token, token, flat=True) if fits else None
    shift = base[token] - length
    if longer is not None and longer[token] - other != shift:
        return None
    if with_batch and (base[with_batch[0]] != batch or (wider is not None and wider[with_batch[0]] != more)):
        return None
    return Axes(token, with_batch[0] if with_batch else None, shift=shift)


def _by_size(base, batch, length):
    token = [a for a, n in enumerate(base) if n == length]
    flat = [a for a, n in enumerate(base) if n == batch * length]
    if len(token) == 1 and batch != length:
        with_batch = [a for a, n in enumerate(base) if n == batch and a != token[0]]
        return Axes(token[0], with_batch[0] if with_batch else None)
    return Axes(flat[0], flat[0], flat=True) if not token and len(flat) == 1 else None


def rows(tensor, axes, batch, length):
    """Returns a view or copy [B,n,…] (B = 1 without a batch axis); n: rows, at most S."""
    if axes.flat:
        moved = tensor.movedim(axes.token, 0)
        rest = moved.shape[1:]
        if axes.by_batch:
            return moved.reshape(batch, length, *rest)
        return moved.reshape(length, batch, *rest).transpose(0, 1)
    if axes.batch is None:
        return tensor.movedim(axes.token, 0)[:length].unsqueeze(0)
    return tensor.movedim((axes.batch, axes.token), (0, 1))[:, :length]


def flat_rows(tensor, axes, batch, length):
    """Returns rows() with all other axes as one: [B,n,width]."""
    value = rows(tensor, axes, batch, length)
    return value.reshape(*value.shape[:2], -1)


def put_rows(tensor, base, axes, where, batch, length):
    """Returns `tensor` with the rows at `where` (bool [B,S]) of `base`. Both have the same shape."""
    mask = where.to(tensor.device)
    if axes.flat:
        mask = mask.reshape(-1) if axes.by_batch else mask.T.reshape(-1)
        shape = [1] * tensor.dim()
        shape[axes.token] = batch * length
        return torch.where(mask.reshape(shape), base, tensor)
    wide = torch.zeros(batch, tensor.shape[axes.token], dtype=torch.bool, device=tensor.device)
    n = min(length, wide.shape[1])
    wide[:, :n] = mask[:, :n]
    shape = [1] * tensor.dim()
    shape[axes.token] = wide.shape[1]
    if axes.batch is None:
        return torch.where(wide.any(0).reshape(shape), base, tensor)
    shape[axes.batch] = batch
    ordered = wide if axes.batch < axes.token else wide.T
    return torch.where(ordered.reshape(shape), base, tensor)


def watched(where, axes, tensor):
    """Returns `where` (bool [B,S]) as a mask of the rows that rows() returns."""
    mask = where
    if axes.shift < 0:
        mask = mask[:, : axes.shift]
    return mask.any(0, keepdim=True) if axes.batch is None else mask


def order_of(base, changed, axes, batch, length, sequence):
    """Returns Axes with the order of a flat axis: `changed` is a run in which all tokens of `sequence` are others."""
    moved = base.movedim(axes.token, 0).flatten(1).ne(changed.movedim(axes.token, 0).flatten(1)).any(1).cpu()
    inside = moved.reshape(batch, length)
    across = moved.reshape(length, batch)
    share = lambda grid, axis: float(grid.select(axis, sequence).float().mean()) - float(grid.float().mean())
    return Axes(axes.token, axes.token, True, share(inside, 0) >= share(across, 1), 0)
