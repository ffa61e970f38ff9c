"""Models whose results differ from run to run: an exact rank test of distances to one base run."""

import torch

from .runs import distances

_RUNS = 14  # base runs, and runs with other tokens, of each cut
_CUTS = 4
_ALPHA, _RATIO = 1e-6, 2.0


def rank_probability(base, other):
    """Returns the exact probability, if both are drawn alike, of rank sums of `other` as high as these. Ties count against
    a finding."""
    n, m = len(base), len(other)
    wins = sum(1 for x in other for y in base if x > y)
    # table[(i, j)][u]: the arrangements of i base values and j others with u wins of the others.
    table = {(i, 0): {0: 1} for i in range(n + 1)} | {(0, j): {0: 1} for j in range(m + 1)}
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            sums = dict(table[(i - 1, j)])  # the largest value is a base value
            for u, c in table[(i, j - 1)].items():  # the largest value is another one: it wins against i base values
                sums[u + i] = sums.get(u + i, 0) + c
            table[(i, j)] = sums
    whole = table[(n, m)]
    return sum(c for u, c in whole.items() if u >= wins) / sum(whole.values())


class RankTest:
    """The test of some cuts. `worst`: (probability × cuts, ratio of medians, cut, kind of the perturbed sequence)."""

    def __init__(self, case, runs, suffixes, trial):
        """trial: function (sequence, cut, seed) that returns a Trial."""
        self._case, self._runs, self._suffixes, self._trial = case, runs, suffixes, trial

    def run(self):
        """Returns (probability after Bonferroni, ratio of medians, cut) of the cut with the lowest probability."""
        length, first = self._case.length, self._runs.rows(self._case.tokens)
        cuts = sorted({max(1, length * k // (_CUTS + 1)) for k in range(1, _CUTS)} | {length - 1})
        bases = [distances(first, self._runs.rows(self._case.tokens)) for _ in range(_RUNS)]
        worst = (1.0, 0.0, cuts[0])
        for cut in cuts:
            others = []
            for at in range(_RUNS):
                tokens = self._suffixes.replaced([self._trial(b, cut, 7919 * cut + at * 31 + b) for b in range(self._case.batch)])
                others.append(self._far(distances(first, self._runs.rows(tokens)), cut))
            base = [self._far(one, cut) for one in bases]
            p = min(1.0, rank_probability(base, others) * len(cuts))
            middle = lambda values: sorted(values)[len(values) // 2]
            ratio = middle(others) / middle(base) if middle(base) > 0 else float("inf")
            worst = min(worst, (p, ratio, cut))
        return worst

    def _far(self, far, cut):
        changed = torch.zeros(self._case.batch, self._case.length, dtype=torch.bool)
        changed[:, cut:] = True
        must = ~self._case.may.reached(changed) & ~self._case.padding.cpu()
        return float(far[self._runs.mask(must).expand(far.shape)].max())


def is_leak(worst):
    return worst[0] <= _ALPHA and worst[1] >= _RATIO
