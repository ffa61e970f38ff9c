"""Tests whether a router looks ahead by intervention: runs it twice with another suffix."""

import dataclasses

import torch


@dataclasses.dataclass
class Flips:
    """Which assignments changed when the suffix of one sequence was replaced."""

    future: bool = False   # of an earlier token of the same sequence
    earlier: bool = False  # of a token in a sequence that is queued before it
    later: bool = False    # of a token in a sequence that is queued after it

    def __or__(self, other):
        return Flips(self.future or other.future, self.earlier or other.earlier,
                     self.later or other.later)


def cuts(length):
    """Returns 1, the powers of two with their neighbours, and the last position."""
    places = {1, length - 1}
    power = 2
    while power < length:
        places |= {power - 1, power, power + 1}
        power *= 2
    return sorted(p for p in places if 0 < p < length)


def suffixes(logits, start, cut, end, random):
    """Replaces rows cut..end of the sequence start..end, by random rows and by rows that compete.

    Yields whole [T, E] logits. The adversarial suffix has copies of the prefix's strongest rows, slightly increased, so
    that they want the same experts with better scores.
    """
    drawn = torch.randn(end - cut, logits.shape[1], generator=random).to(logits.dtype)
    prefix = logits[start:cut]
    strongest = prefix[prefix.float().max(dim=1).values.argsort(descending=True)]
    copies = strongest.repeat(-(-(end - cut) // len(strongest)), 1)[:end - cut]
    for rows in (drawn, (copies.float() * 1.25 + 0.125).to(logits.dtype)):
        changed = logits.clone()
        changed[cut:end] = rows
        yield changed


def intervene(route, logits, sequences, length, random):
    """Returns the Flips of a router over `sequences` rows of `length` tokens each, over all sequences and cuts.

    route: [T, E] logits -> [T, E] bool, which expert computes which token.
    """
    base = route(logits)
    if not torch.equal(base, route(logits)):
        raise AssertionError("the router gives different results for equal inputs: no result is possible")
    found = Flips()
    for sequence in range(sequences):
        start, end = sequence * length, (sequence + 1) * length
        for cut in cuts(length):
            for changed in suffixes(logits, start, start + cut, end, random):
                moved = (route(changed) != base).any(dim=1)
                found |= Flips(future=moved[start:start + cut].any().item(),
                               earlier=moved[:start].any().item(),
                               later=moved[end:].any().item())
    return found
