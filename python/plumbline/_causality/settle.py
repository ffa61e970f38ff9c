"""Rows moved that must not: is it rounding, the sequence's own future or another sequence, and which module does it?"""

import torch

from .dice import Draws
from .gradient import future_gradient
from .locate import Localiser, names_of
from .rounding import LEAK, InDouble, judge, message_of
from .runs import distances, moved
from .verdict import Finding

_ALONE = 6  # trials that are repeated alone
_IN_DOUBLE = 96  # attempts that are repeated in double for the matrix
_OTHERS = 48  # forward passes that are searched for further modules at fault
_STRENGTH = {"leak": "proved", "shared-scale": "proved", "heuristic": "heuristic"}
_FIX = {
    "next-token": "compare the mask's diagonal, and the shift of inputs and labels: row i may use tokens 0 … i",
    "near-tokens": "pad convolutions, windows and token shifts on the left only; compute statistics over a chunk from tokens up to the row's own; pass an intended span as allowed=",
    "later-tokens": "compute masks, statistics over tokens, capacities and choices from tokens up to the row's own",
    "shared-scale": "compute the scale (amax) per token, or with delay from earlier steps",
    "other-sequences": "compute statistics, capacities and choices of each sequence alone",
    "other-documents": "pass the documents to the attention (block-diagonal mask, cu_seqlens), and reset states between them",
    "padding": "mask padding in attention, statistics and routing",
}


class Settle:
    """Judges and attributes moves of one ModeCheck."""

    def __init__(self, owner):
        self._owner, self._runs, self._case = owner, owner.runs, owner.case
        self._suffixes, self._verdict = owner.suffixes, owner.verdict
        self._double = InDouble(owner.runs)
        self._mixes = False  # a sequence moves rows of others

    # ---- trials --------------------------------------------------------------------------------

    def hits(self, search):
        self.hits_of(search.base, search.hits, search)

    def hits_of(self, base, hits, search=None):
        """Judges attempts in which rows moved. Adds findings or reasons to the verdict."""
        hits, dropped = self._not_shifted(hits)
        if dropped:
            self._owner._inconclusive("random-shapes", f"in {dropped} trials the shapes of random draws depend on the tokens, so rows move without a leak")
        if not hits:
            return
        if search is not None and search.wide:
            self._leak(search.base, hits[0], "all", "leak", hits, search)
            return
        attempts = [(self._suffixes.replaced(one.trials), self._runs.mask(one.must)) for one in hits]
        found, at = judge(self._runs, self._double, base, attempts)
        if found.kind == "rounding":
            self._verdict.kind = "rounding"
            self._verdict.notes.append(f"rows moved by {found.far:.1e} by rounding: {found.why}")
        elif found.kind == "unclear":
            self._owner._inconclusive("rounding-not-settled", found.why)
        else:
            if found.why:
                self._verdict.notes.append(found.why)
            self._leak(base, hits[at], found.wide, found.kind, hits, search)

    def _not_shifted(self, hits):
        """Returns (hits without those whose random draws have other shapes than in the base run, their number)."""
        shapes = self._shapes(self._case.tokens)
        if not shapes:
            return hits, 0
        kept = [one for one in hits if self._shapes(self._suffixes.replaced(one.trials)) == shapes]
        return kept, len(hits) - len(kept)

    def _shapes(self, tokens):
        draws = Draws(False)
        self._runs.rows(tokens, extra=[draws])
        return draws.shapes

    def _far(self, tokens, wide, base):
        return distances(base, self._runs.rows(tokens)) if wide is None else self._double.far(tokens, wide)

    def _leak(self, base, attempt, wide, kind, hits, search):
        """Separates the sequences: which trial moves rows alone, and whose?"""
        floor = LEAK if wide else 0.0
        own = other = None
        order = attempt.trials if attempt.far is None else sorted(
            attempt.trials, key=lambda t: -float(attempt.far[min(t.sequence, len(attempt.far) - 1)].max()))  # fmt: skip
        for trial in order[:_ALONE]:
            tokens, where = self._suffixes.replaced([trial]), torch.zeros_like(attempt.must)
            where[trial.sequence] = attempt.must[trial.sequence]
            far = self._far(tokens, wide, base).cpu()
            others = ~self._case.padding.cpu()
            others[trial.sequence] = False
            mixes = self._reaches(far, others, floor)
            self._mixes |= mixes
            if self._reaches(far, where, floor):
                own = (trial, tokens, where, far)
                break
            if other is None and mixes:
                other = (trial, tokens, others, far)
        if own is not None:
            self._future(own, wide, kind, hits, search)
        elif other is None or "batch" not in self._case.extras:  # else the check of whole sequences reports it
            self._joint(attempt, wide, kind)

    def _reaches(self, far, where, floor):
        return bool((~(far <= floor) & self._runs.mask(where).cpu().expand(far.shape)).any())

    def _joint(self, attempt, wide, kind):
        self._verdict.add(Finding("causality/batch-influence", "warning", _STRENGTH[kind], "other-sequences",
                                  "rows moved only when tokens of several sequences were replaced at once", _FIX["other-sequences"]))  # fmt: skip

    def _future(self, own, wide, kind, hits, search):
        trial, tokens, where, far = own
        value, row = self._worst(far, where)
        hits = self._without_rounding(hits, wide, value)
        cause = "shared-scale" if kind == "shared-scale" else self._cause(hits, far, where, trial)
        single = f"{value:.1e} (relative{', in double' if wide else ''})"
        level = "warning" if kind == "shared-scale" else "error"
        text = (f"row {row[1]} of sequence {trial.sequence} moved by {single} when only tokens from position {trial.cut} on "
                f"were replaced ({trial.kind} tokens)")  # fmt: skip
        finding = Finding("causality/future-influence", level, _STRENGTH[kind], cause, text, _FIX[cause], measured=value, threshold=LEAK if wide else 0.0)
        finding.modules = self._modules(tokens, where, wide, value, hits)
        self._verdict.add(finding)
        if search is not None:
            self._verdict.matrix = search.matrix(0.0 if search.wide else value * 1e-4)
        changed = torch.zeros_like(where)
        changed[trial.sequence, trial.cut :] = True
        if self._runs.module is not None and kind == "leak":
            self._verdict.gradient = future_gradient(self._runs, where, changed & ~self._case.padding.cpu())

    def _without_rounding(self, hits, wide, value):
        """Returns the attempts with moves computed in double, if those of the model's own arithmetic may be rounding."""
        if wide != "all" or value > 0.04 or hits[0].far is None:
            return hits
        kept = []
        for one in hits[:_IN_DOUBLE]:
            far = self._double.far(self._suffixes.replaced(one.trials)).cpu()
            one.far = far.masked_fill(~((far > LEAK) & self._runs.mask(one.must).cpu().expand(far.shape)), 0.0)
            if bool(one.far.any()):
                kept.append(one)
        for one in hits[_IN_DOUBLE:]:
            one.far = torch.zeros_like(one.far)
        return kept

    def _distinct(self, hits):
        """Returns attempts with other cuts than those before, for the search of further modules; none if sequences mix."""
        if self._mixes:
            return []
        seen, chosen = set(), []
        for one in hits:
            cuts = {trial.cut for trial in one.trials} - seen
            if cuts:
                seen |= cuts
                chosen.append(one)
        return chosen[:_OTHERS]

    def _worst(self, far, where):
        far = far.masked_fill(~self._runs.mask(where).cpu().expand(far.shape), 0.0)
        at = int(far.flatten().argmax())
        return float(far.flatten()[at]), (at // far.shape[1], at % far.shape[1])

    def _cause(self, hits, far, where, trial):
        """Names how far the rows that moved are from the tokens that were replaced."""
        value = self._worst(far, where)[0]
        reach = room = 0  # how far rows see, and how far the trials could show
        for attempt in hits:
            for one in attempt.trials:
                if attempt.far is not None:
                    room = max(room, one.cut)
                    rows = (attempt.far[min(one.sequence, len(attempt.far) - 1)] > value * 1e-4).nonzero().flatten()
                    reach = max([reach, *(one.cut - int(i) for i in rows)])
        length = self._case.length
        return "next-token" if reach == 1 else "near-tokens" if 1 < reach <= min(length // 4, room // 2) else "later-tokens"

    def _modules(self, tokens, where, wide, value, hits=()):
        if self._runs.module is None:
            self._verdict.notes.append("not localised: the model is a function without modules")
            return []
        tolerance = min(LEAK, max(value / 64, 2.0**-44)) if wide else 0.0
        try:
            localiser = Localiser(self._runs, self._suffixes, wide, tolerance)
            localiser.add(tokens, where)
            for one in self._distinct(hits):
                localiser.add(self._suffixes.replaced(one.trials), one.must)
        except Exception as error:  # the finding is true without it
            self._verdict.notes.append(f"not localised: {message_of(error)}")
            return []
        return names_of(localiser.found)

    # ---- other sequences and documents ---------------------------------------------------------

    def probe(self, rule, level, cause, what, changed, tokens, must):
        """Replaces tokens, and adds a finding of `rule` if a row of `must` (bool [B,S]) moves. Returns whether one did."""
        if not bool(must.any()) or not bool(changed.any()):
            return False
        base, mask = self._runs.rows(self._case.tokens), self._runs.mask(must)
        other = self._runs.rows(tokens)
        if not bool((moved(base, other) & mask).any()):
            return False
        shapes = self._shapes(self._case.tokens)
        if shapes and self._shapes(tokens) != shapes:
            self._verdict.reason("random-shapes", "the shapes of random draws depend on the tokens", what)
            return False
        found, _ = judge(self._runs, self._double, base, [(tokens, mask)], exact=self._owner.search.wide is None)
        if found.kind == "rounding":
            if self._verdict.kind == "exact":
                self._verdict.kind = "rounding"
            return False
        if found.kind == "unclear":
            self._verdict.reason("rounding-not-settled", found.why, what)
            return False
        far = self._far(tokens, found.wide, base).cpu()
        value, (sequence, row) = self._worst(far, must)
        at = changed.nonzero()[0].tolist()
        text = f"row {row} of sequence {sequence} moved by {value:.1e} when only {what} were replaced (first: position {at[1]} of sequence {at[0]})"
        finding = Finding(rule, "warning" if found.kind == "shared-scale" else level, _STRENGTH[found.kind], cause, text, _FIX[cause],
                          measured=value, threshold=LEAK if found.wide else 0.0)  # fmt: skip
        finding.modules = self._modules(tokens, must, found.wide, value)
        self._verdict.add(finding)
        return True
