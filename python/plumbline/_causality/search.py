"""Runs the trials: replaces tokens, and looks for output rows that moved although they must not."""

import time

import torch

from .cuts import plan
from .rounding import LEAK
from .runs import distances, moved, unclear

_BINS = 32  # ranges of positions in the matrix


class Attempt:
    """One forward pass with the suffixes of several trials, and what moved."""

    def __init__(self, trials, must, may):
        """must, may: bool [B,S], the rows that must not move, and those that may."""
        self.trials, self.must, self.may = trials, must, may
        self.far = None  # relative moves [B,n] if a row of `must` moved
        self.counted = []  # trials in which a row moved that may


class Search:
    """All trials of a model in one arithmetic. wide: None compares values; "all" compares in double."""

    def __init__(self, case, runs, suffixes, wide=None):
        self.case, self.runs, self.suffixes, self.wide = case, runs, suffixes, wide
        self.base = runs.rows(case.tokens, wide=wide)
        self.tried, self.hits, self.cut_positions = [], [], []
        self.alive = torch.zeros(self.base.shape[:2], dtype=torch.bool)  # rows that moved when they may
        self.reached = self.alive.clone()  # rows that may have moved in some trial
        self.out_of_time = False

    def changed(self, trials):
        where = torch.zeros(self.case.batch, self.case.length, dtype=torch.bool)
        for one in trials:
            where[one.sequence, one.cut :] = True
        return where & ~self.case.padding.cpu()

    def masks(self, changed):
        """Returns (rows that must not move, rows that may), of live tokens."""
        may, live = self.case.may.reached(changed), ~self.case.padding.cpu()
        return ~may & live, may & live

    def run(self):
        """Runs the plan. After it `hits` holds the attempts in which something moved."""
        self.cut_positions, forwards = plan(self.case.batch, self.case.length, self.case.trials, self.case.seed)
        began, done = time.monotonic(), set()
        for trials in forwards:
            self.one(trials)
            done |= {one.cut for one in trials}
            if self.case.budget is not None and time.monotonic() - began > self.case.budget:
                self.out_of_time = trials is not forwards[-1]
                break
        self.cut_positions = sorted(done)
        return self

    def one(self, trials):
        changed = self.changed(trials)
        attempt = Attempt(trials, *self.masks(changed))
        other = self.runs.rows(self.suffixes.replaced(trials), wide=self.wide)
        far = distances(self.base, other) if self.wide else None
        differ = far > LEAK if self.wide else moved(self.base, other)
        bad = differ & self.runs.mask(attempt.must)
        if bool(bad.any()):
            far = distances(self.base, other) if far is None else far
            attempt.far = far.masked_fill(~bad, 0.0).cpu()
            self.hits.append(attempt)
        may = (moved(self.base, other) & self.runs.mask(attempt.may)).cpu()
        self.alive |= may
        self.reached |= self.runs.mask(attempt.may).cpu()
        attempt.counted = [one for one in trials if bool(may[min(one.sequence, len(may) - 1)].any())]
        self.tried.append(attempt)
        return attempt

    # ---- what was covered ----------------------------------------------------------------------

    def counted(self):
        return sum(len(one.counted) for one in self.tried)

    def share_of_cuts(self):
        return len(self.cut_positions) / max(1, self.case.length - 1)

    def still(self):
        """Returns the share of the rows that never moved although a trial had replaced tokens that they may follow."""
        return float((self.reached & ~self.alive).sum()) / max(1, int(self.reached.sum()))

    def blank(self):
        """Returns the share of live rows whose base values are all NaN or infinite."""
        live = self.runs.mask(~self.case.padding.cpu()).expand(self.base.shape[:2])
        return float((unclear(self.base) & live).sum()) / max(1, int(live.sum()))

    def matrix(self, floor):
        """Returns the share of trials, by range of cuts, in which rows of a range moved by more than `floor`."""
        length = self.case.length
        bins = min(_BINS, length)
        of = lambda position: position * bins // length
        moves, trials = torch.zeros(bins, bins), torch.zeros(bins, bins)
        for attempt in self.tried:
            for one in attempt.trials:
                row, b = of(one.cut), min(one.sequence, self.base.shape[0] - 1)
                watched = {of(i) for i in range(length) if bool(attempt.must[one.sequence, i])}
                hit = set() if attempt.far is None else {of(int(i)) for i in (attempt.far[b] > floor).nonzero().flatten()}
                for column in watched:
                    trials[row, column] += 1
                    moves[row, column] += column in hit
        first = lambda k: -(-k * length // bins)
        positions = [[first(k), first(k + 1) - 1] for k in range(bins)]
        share = [[None if trials[r, c] == 0 else float(moves[r, c] / trials[r, c]) for c in range(bins)] for r in range(bins)]
        return {"positions": positions, "moved": share}


def excluded(trials):
    """Returns the share of trials above which a leak would have shown with a probability of 99 %."""
    return 1 - 0.01 ** (1 / trials) if trials else 1.0
