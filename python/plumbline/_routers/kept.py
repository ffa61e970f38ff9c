"""Finds the choices that a router kept: by the rows that its experts got, else by its result."""

import sys

_COLUMNS = 64  # number of a token's values that identify it


def kept_choices(follower, found, chosen, outputs, logits):
    """Returns the kept choices as [T,E], or None. Reads them from the experts' inputs if these are known, else from the
    module's result."""
    wanted = sys.modules["torch"].zeros(logits.shape, dtype=sys.modules["torch"].bool, device=logits.device)
    wanted.scatter_(1, chosen, True)
    given = entered(follower, wanted, outputs)
    if given is not None:
        return given
    mask = returned(outputs, logits)
    if mask is None or not found.limited or follower.drops or bool((wanted & ~mask).any()):
        return mask
    return None  # this may be the mask before the capacity was applied


def returned(outputs, logits):
    torch = sys.modules["torch"]
    tokens, experts = logits.shape
    kept, weights = None, None
    for one in outputs["inner"]:
        if one.dim() == 3 and tuple(one.shape[:2]) == (tokens, experts) and one.dtype is torch.bool:
            return one.any(dim=2)
        if not one.dim() or one.shape[-1] != experts or one.numel() != tokens * experts:
            continue
        if one.is_floating_point():
            weights = one.detach().reshape(tokens, experts)
        elif one.dtype is torch.bool or bool(((one == 0) | (one == 1)).all()):
            kept = one.reshape(tokens, experts).bool()
    if kept is not None and weights is not None and bool((weights == 0).any()):
        kept = kept & (weights != 0)  # a map padded to capacity has entries whose weight is zero
    return kept


def _marks(rows):
    """Returns a number for each row; rows that are equal to the bit have the same number."""
    torch = sys.modules["torch"]
    some = rows[:, :: max(1, rows.shape[1] // _COLUMNS)].float() + 0.0
    bits = some.contiguous().view(torch.int32).long()
    odd = torch.arange(1, bits.shape[1] + 1, device=rows.device) * 0x9E3779B97F4A7C1 + 1
    mixed = bits * odd
    return (mixed ^ (mixed >> 29)).mul(0x2545F4914F6CDD1D).sum(dim=1)


def entered(follower, wanted, outputs):
    """Returns the kept choices as [T,E], from the rows that the experts got. Returns None if these are not the tokens'
    rows."""
    for tokens in outputs["tokens"]:
        if tokens is not None and tokens.dim() > 1 and tokens.numel() == len(wanted) * tokens.shape[-1]:
            kept = _matched(follower.fed, tokens.detach().reshape(len(wanted), -1), wanted)
            if kept is not None:
                return kept
            follower.alike = follower.alike or _alike(tokens.detach().reshape(len(wanted), -1))
    return None


def _alike(tokens):
    """Returns whether two rows are equal: then this call may not show which of them was kept."""
    return len(sys.modules["torch"].unique(_marks(tokens))) < len(tokens)


def _matched(fed, tokens, wanted):
    torch = sys.modules["torch"]
    if not fed or any(x.shape[-1] != tokens.shape[1] for _, x in fed):
        return None
    experts, width = wanted.shape[1], tokens.shape[1]
    owners, given = [], []
    for expert, x in fed:
        if expert is None:  # the input [E,C,H] of all experts
            if x.dim() != 3 or x.shape[0] != experts:
                return None
            owners.append(torch.arange(experts, device=x.device).repeat_interleave(x.shape[1]))
        else:
            owners.append(torch.full((x.numel() // width,), expert, device=x.device))
        given.append(x.reshape(-1, width))
    given, owners = torch.cat(given), torch.cat(owners)
    full = given.abs().sum(dim=1) != 0  # the other rows are padding
    given, owners = given[full], owners[full]
    marks, own = torch.unique(_marks(tokens.to(given.dtype)), return_inverse=True)
    theirs = _marks(given)
    place = torch.searchsorted(marks, theirs).clamp(max=len(marks) - 1)
    if not bool((marks[place] == theirs).all()):
        return None
    if bool((wanted.any(dim=0) & (torch.bincount(owners, minlength=experts) == 0)).any()):
        return None  # an expert's computation was not observed
    cells = torch.bincount(place * experts + owners, minlength=len(marks) * experts).reshape(-1, experts)
    requested = torch.zeros_like(cells).index_add_(0, own, wanted.long())
    if bool(((cells != 0) & (cells != requested)).any()):
        return None  # every expert computes every token, or some of several equal tokens were not kept
    return (cells[own] != 0) & wanted
