"""The order of a check: state, repeats, trials, judgement, localisation, neighbours."""

import functools

from . import neighbours
from .case import Case
from .cuts import Trial
from .dice import Dice, Draws, WithoutDropout
from .repeats import RankTest, is_leak
from .rounding import InDouble, message_of
from .runs import Runs, Shape, moved
from .search import Search, excluded
from .settle import Settle
from .state import State, fill_zeros
from .verdict import CausalityError, CausalityVerdict, Finding
from .wide import NotWidened

_SEEDED = 4  # forward passes with dropout
_STILL = 0.05  # the largest share of rows that may never move
_ORDER = {"passed": 0, "inconclusive": 1, "finding": 2}


def check(model, tokens, mode=None, **options):
    """Returns the verdict; of mode="both" the one of the more severe mode."""
    if mode not in (None, "train", "eval", "both"):
        raise CausalityError(f"mode: found {mode!r}; expected train, eval or both")
    case = Case(model, tokens, **options)
    verdicts = [ModeCheck(case, one).run() for one in (("eval", "train") if mode == "both" else (mode,))]
    worst = max(verdicts, key=lambda one: _ORDER[one.verdict])
    if len(verdicts) > 1:
        worst.forwards = sum(one.forwards for one in verdicts)
        worst.notes.append("modes: " + ", ".join(f"{one.mode} {one.verdict}" for one in verdicts))
    return worst


class ModeCheck:
    """A check in one mode of the model."""

    def __init__(self, case, mode):
        self.case, self.mode = case, mode
        self.verdict = CausalityVerdict(mode=mode or ("train" if case.module is not None and case.module.training else "eval"))
        self.clear = True  # False if something that matters could not be judged
        self.draws = None

    def run(self):
        everything = {id(m): m for one in self.case.modules for m in one.modules()}
        dice, state = Dice(), State(everything.values())
        try:
            if self.mode is not None:
                for one in everything.values():
                    one.training = self.mode == "train"
            if self.case.module is not None:
                self.verdict.filled = fill_zeros(self.case.module, state, self.case.seed)
            state.restore()
            self._checked(state, dice, any(m.training for m in everything.values()))
        except Shape as why:
            self._inconclusive("shape", str(why))
        finally:
            state.put_back()
            dice.restore()
        self.verdict.conclude(self.clear)
        return self.verdict

    def _checked(self, state, dice, training):
        case = self.case
        runs = self.runs = Runs(case.model, case.module, state, dice, case.tokens, case.argument, case.inputs, case.which)
        runs.modes = [WithoutDropout] if training else []
        try:
            with runs.prepared():
                ids = case.ids()
            self.suffixes = case.suffixes(ids)
            runs.find_axes(self.suffixes)
        except (Shape, CausalityError):
            raise
        except Exception as error:
            raise CausalityError(f"the model failed on the tokens as given: {message_of(error)}") from error
        self.settle = Settle(self)
        try:
            self._search(training)
            neighbours.run(self)
        finally:
            self.verdict.forwards = runs.count

    def _inconclusive(self, name, text):
        self.clear = False
        self.verdict.reason(name, text)

    # ---- the trials ----------------------------------------------------------------------------

    def _search(self, training):
        wide = self._arithmetic()
        if wide is False:
            return
        search = self.search = Search(self.case, self.runs, self.suffixes, wide).run()
        self._coverage(search)
        self.verdict.kind = "rounding" if wide else "exact"
        if search.hits:
            self.settle.hits(search)
        if training and not search.hits:
            self._with_dropout()

    def _arithmetic(self):
        """Returns None if base runs repeat to the bit, "all" if only in double, False if they never do."""
        runs, tokens = self.runs, self.case.tokens
        if not self._repeats():
            runs.modes = [*runs.modes, functools.partial(Draws, True)]
            if not self._repeats():
                runs.modes.pop()
                self.verdict.notes.append("two runs of the same tokens differ")
                try:
                    InDouble(runs).base("all")
                    return "all"
                except NotWidened as error:
                    self._ranks(str(error), tokens)
                    return False
            self.verdict.notes.append("two runs of the same tokens differ, unless each random draw has its own seed")
        return None

    def _repeats(self):
        one, other = (self.runs.rows(self.case.tokens) for _ in range(2))
        return not bool(moved(one, other).any())

    def _ranks(self, why, tokens):
        worst = RankTest(self.case, self.runs, self.suffixes, lambda b, cut, seed: Trial(b, cut, "random", seed)).run()
        if is_leak(worst):
            self.verdict.add(Finding("causality/future-influence", "error", "statistical", "later-tokens",
                                     f"rows before position {worst[2]} move {worst[1]:.3g} times as far if later tokens are replaced as from run to "
                                     f"run (exact rank test, p = {worst[0]:.1e})", "remove the dependence on later tokens; see the page",
                                     measured=worst[1], threshold=2.0))  # fmt: skip
            return
        self._inconclusive("nondeterministic", f"two runs of the same tokens differ, {why}; the rank test shows no leak (p = {worst[0]:.1e}), which is no pass")

    def _coverage(self, search):
        verdict, counted = self.verdict, search.counted()
        verdict.cuts, verdict.cut_share, verdict.trials = search.cut_positions, search.share_of_cuts(), counted
        verdict.excluded_rate = excluded(counted)
        still, blank = search.still(), search.blank()
        verdict.allowed_moved = 1 - still
        if blank > 0:
            self._inconclusive("non-finite", f"{100 * blank:.3g} % of the output rows hold only NaN or infinite values")
        if counted < min(self.case.trials, 64):
            late = f"; the time limit of {self.case.budget} s ended the search" if search.out_of_time else ""
            self._inconclusive("budget" if late else "nothing-moves",
                               f"{counted} trials moved a row that may move; expected at least {min(self.case.trials, 64)}{late}")  # fmt: skip
        elif still > _STILL:
            self._inconclusive("rows-never-move", f"{100 * still:.3g} % of the output rows never moved, although their own tokens were replaced")
        elif still > 0:
            verdict.notes.append(f"{100 * still:.3g} % of the output rows never moved, so nothing is known of them")

    # ---- dropout -------------------------------------------------------------------------------

    def _drawn(self):
        self.draws = Draws(True)
        return self.draws

    def _with_dropout(self):
        """Repeats some trials with dropout, each draw with a seed of its own. Draws of shapes that depend on the data
        shift the others: this is no leak."""
        kept, self.runs.modes = self.runs.modes, [self._drawn]
        try:
            base = self.runs.rows(self.case.tokens)
            shapes = self.draws.shapes
            if not shapes or bool(moved(base, self.runs.rows(self.case.tokens)).any()):
                return
            hits, shifted = [], 0
            step = max(1, len(self.search.tried) // _SEEDED)
            for attempt in self.search.tried[::step][:_SEEDED]:
                tokens = self.suffixes.replaced(attempt.trials)
                other = self.runs.rows(tokens)
                if self.draws.shapes != shapes:
                    shifted += 1
                elif bool((moved(base, other) & self.runs.mask(attempt.must)).any()):
                    hits.append(attempt)
            if shifted:
                self.verdict.notes.append(f"with dropout, {shifted} trials were not compared: shapes of random draws depend on the tokens")
            if hits:
                self.settle.hits_of(base, hits)
        finally:
            self.runs.modes = kept
