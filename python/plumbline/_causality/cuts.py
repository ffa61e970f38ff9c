"""Where sequences are cut, with which tokens they continue, and which rows may follow which tokens."""

import random
from dataclasses import dataclass

import torch

SMALL = 256  # up to this length each position is cut
_GRID = 128  # multiples of 16 up to here
_RANDOM = 48  # random cuts of longer sequences
_REPEATED, _SPECIAL = 16, 8  # trials of these kinds


@dataclass(frozen=True)
class Trial:
    """`sequence` continues from position `cut` on with other tokens. `kind`: "random", "repeated" or "special"."""

    sequence: int
    cut: int
    kind: str
    seed: int


def all_cuts(length, dice):
    """Returns the positions, of 1 to length - 1, in ascending order."""
    if length <= SMALL:
        return list(range(1, length))
    marks = {1 << k for k in range(length.bit_length())} | set(range(16, _GRID + 1, 16)) | {length - 1}
    chosen = {mark + shift for mark in marks for shift in (-1, 0, 1)}
    chosen |= {dice.randrange(1, length) for _ in range(_RANDOM)}
    return sorted(p for p in chosen if 1 <= p < length)


def plan(batch, length, smallest, seed):
    """Returns (cuts, [[Trial]]): the trials of each forward pass, at most one per sequence."""
    dice = random.Random(seed)
    cuts = all_cuts(length, dice)
    order = cuts[:]
    dice.shuffle(order)
    middle = [p for p in cuts if length // 4 <= p <= 3 * length // 4] or cuts
    kinds = [(p, "random") for p in order]
    kinds += [(dice.choice(middle), "repeated") for _ in range(_REPEATED)]
    kinds += [(dice.choice(cuts), "special") for _ in range(_SPECIAL)]
    while len(kinds) < smallest or len(kinds) % batch:
        kinds.append((dice.choice(cuts), "random"))
    trials = [Trial(at % batch, p, kind, seed * 100003 + at) for at, (p, kind) in enumerate(kinds)]
    return cuts, [trials[at : at + batch] for at in range(0, len(trials), batch)]


class Suffixes:
    """Makes the tokens of a trial. `ids`: the number of token ids. `special`: ids that models treat apart."""

    def __init__(self, tokens, ids, special, fixed):
        """fixed: bool [B,S], positions that are never replaced (padding)."""
        self._tokens, self._ids, self._fixed = tokens, ids, fixed
        self._special = [one for one in dict.fromkeys(special) if 0 <= one < ids] or [0]

    def other(self, old, generator):
        """Returns random ids, each different from the one in `old`."""
        steps = torch.randint(1, max(2, self._ids), old.shape, generator=generator)
        return ((old.cpu() + steps) % self._ids).to(old)

    def replaced(self, trials):
        """Returns the tokens [B,S] with the suffixes of `trials`."""
        out = self._tokens.clone()
        for trial in trials:
            out[trial.sequence] = self._of(trial)
        return torch.where(self._fixed, self._tokens, out)

    def _of(self, trial):
        row = self._tokens[trial.sequence].clone()
        generator = torch.Generator().manual_seed(trial.seed)
        old = row[trial.cut :].clone()
        if trial.kind == "random":
            row[trial.cut :] = self.other(old, generator)
            return row
        if trial.kind == "repeated":
            one = row[int(torch.randint(0, trial.cut, (1,), generator=generator))]
        else:
            one = torch.tensor(self._special[trial.seed % len(self._special)]).to(row)
        row[trial.cut :] = one if bool((old != one).any()) else self.other(old, generator)
        return row

    def sequence(self, chosen, seed):
        """Returns the tokens with all ids of the sequences `chosen` (bool [B]) replaced."""
        return self.at(chosen.to(self._tokens.device)[:, None].expand_as(self._tokens), seed)

    def at(self, where, seed):
        """Returns the tokens with the ids at `where` (bool [B,S]) replaced by random ids."""
        fresh = self.other(self._tokens, torch.Generator().manual_seed(seed))
        return torch.where(where.to(self._tokens.device), fresh, self._tokens)


class May:
    """The relation: which rows may follow which tokens of their own sequence."""

    def __init__(self, length, allowed=None, lookahead=0, documents=None):
        """documents: integers [B,S] or None."""
        self.length, self.lookahead, self.documents = length, lookahead, documents
        self.extra = self._matrix(allowed)

    def _matrix(self, allowed):
        if allowed is None or (isinstance(allowed, int) and not isinstance(allowed, bool) and allowed < 2):
            return None
        if torch.is_tensor(allowed):
            if allowed.shape[-2:] != (self.length, self.length) or allowed.dim() != 2:
                raise ValueError(f"allowed: expected shape [{self.length},{self.length}], found {list(allowed.shape)}")
            return allowed.bool().cpu()
        spans = [(0, allowed - 1)] if isinstance(allowed, int) else list(allowed)
        matrix = torch.zeros(self.length, self.length, dtype=torch.bool)
        for first, last in spans:
            matrix[first : last + 1, first : last + 1] = True
        return matrix

    def reached(self, changed):
        """Returns the rows [B,S] that may follow a token at `changed` (bool [B,S]), documents aside."""
        changed = changed.cpu()
        ahead = changed.clone()
        for shift in range(1, self.lookahead + 1):
            ahead[:, :-shift] |= changed[:, shift:]
        rows = ahead.cumsum(1) > 0
        if self.extra is not None:
            rows |= (changed.float() @ self.extra.float().T) > 0
        return rows

    def reached_in_documents(self, changed):
        """Does the same as reached(), but a row follows only tokens of its own document."""
        out = torch.zeros_like(changed.cpu())
        for one in self.documents.unique().tolist():
            inside = (self.documents == one).cpu()
            out |= self.reached(changed.cpu() & inside) & inside
        return out


def special_ids(module, ids):
    """Returns ids that a model may treat apart: of padding, of the beginning and the end, the first and last ones."""
    config = getattr(module, "config", None)
    named = [getattr(config, name, None) for name in ("pad_token_id", "eos_token_id", "bos_token_id")]
    flat = [one for value in named for one in (value if isinstance(value, (list, tuple)) else [value])]
    return [one for one in [*flat, 0, 1, 2, ids - 1] if isinstance(one, int)]
