"""The result of check_causality, as text and JSON."""

import json
from dataclasses import asdict, dataclass, field

LEVELS = ("note", "warning", "error")


class CausalityError(RuntimeError):
    """The model failed before anything was changed, or the arguments do not fit it."""


@dataclass
class Finding:
    """One fault. rule, level, strength, cause: names of the page docs/causality.md.

    modules  names of the modules at fault, with the place inside them; "" is the model itself
    message  the fact first, with positions and sizes
    fix      what to do first
    """

    rule: str
    level: str
    strength: str
    cause: str
    message: str
    fix: str = ""
    modules: list = field(default_factory=list)
    measured: float = None
    threshold: float = None

    def __str__(self):
        where = f" in {', '.join(self.modules)}" if self.modules else ""
        return f"{self.rule} ({self.level}, {self.strength}, cause {self.cause}){where}: {self.message}"


@dataclass
class Reason:
    """Why something was not judged. `subject`: what."""

    id: str
    text: str
    subject: str = "model"


@dataclass
class CausalityVerdict:
    """The result of `check_causality`.

    verdict      "passed", "finding" or "inconclusive". Notes alone leave it "passed"
    kind         of a pass: "exact" (no bit moved) or "rounding" (moves that vanish in double)
    findings     [Finding], the most severe first
    reasons      [Reason]: what was not judged, and why
    cuts         positions that were tried; cut_share: their share of all positions
    trials       number of perturbations; excluded_rate: a leak that shows in a larger share of them is excluded at 99 %
    matrix       {"positions": [[first, last], …], "moved": [[share]]}: rows: tokens from a position of this range on
                 were replaced; columns: the share of the trials in which an output row of this range moved. None: no leak
    allowed_moved  share of the rows that may move and did
    forwards     number of forward passes
    mode         "train" or "eval"
    filled       parameters that were all zero and were filled for the check
    notes        facts about how it was judged
    """

    verdict: str = "inconclusive"
    kind: str = None
    findings: list = field(default_factory=list)
    reasons: list = field(default_factory=list)
    cuts: list = field(default_factory=list)
    cut_share: float = 0.0
    trials: int = 0
    excluded_rate: float = None
    matrix: dict = None
    allowed_moved: float = None
    gradient: float = None
    forwards: int = 0
    mode: str = None
    filled: list = field(default_factory=list)
    notes: list = field(default_factory=list)

    # ---- the most severe finding ---------------------------------------------------------------

    def _first(self, name, otherwise=None):
        return getattr(self.findings[0], name) if self.findings else otherwise

    level = property(lambda self: self._first("level"))
    strength = property(lambda self: self._first("strength"))
    rule = property(lambda self: self._first("rule", "causality/future-influence"))
    modules = property(lambda self: self._first("modules", []))
    fix = property(lambda self: self._first("fix", ""))

    @property
    def cause(self):
        return self._first("cause", self.reasons[0].id if self.reasons and self.verdict == "inconclusive" else None)

    @property
    def message(self):
        if self.findings and self.verdict == "finding":
            return self.findings[0].message
        if self.verdict == "passed":
            rounding = " except by rounding" if self.kind == "rounding" else ""
            return f"no output row moved{rounding} when a token that it must not see was replaced"
        return self.reasons[0].text if self.reasons else "nothing was judged"

    def add(self, finding):
        self.findings.append(finding)
        self.findings.sort(key=lambda one: -LEVELS.index(one.level))

    def reason(self, name, text, subject="model"):
        self.reasons.append(Reason(name, text, subject))

    def conclude(self, passes):
        """passes: nothing moved in enough trials."""
        if any(one.level != "note" for one in self.findings):
            self.verdict = "finding"
        else:
            self.verdict = "passed" if passes else "inconclusive"

    # ---- forms ---------------------------------------------------------------------------------

    def _grade(self):
        if self.verdict == "finding":
            return f" ({self.level}, {self.strength}): {self.rule}, cause {self.cause}"
        return f" ({self.kind}): {self.message}" if self.verdict == "passed" else f" ({self.cause}): {self.message}"

    def __str__(self):
        lines = [self.verdict + self._grade()]
        for one in self.findings:
            lines.append("  " + str(one))
            if one.fix:
                lines.append("    fix: " + one.fix)
        if self.matrix:
            lines += ["  share of the trials that moved a row; rows: replaced from here on, columns: rows of the output"]
            lines += ["  " + line for line in matrix_lines(self.matrix)]
        if self.trials:
            rate = "" if self.excluded_rate is None or self.verdict != "passed" else (
                f"; excludes, at 99 %, leaks that show in more than {100 * self.excluded_rate:.2g} % of such trials")  # fmt: skip
            lines.append(f"  tried: {self.trials} trials, {100 * self.cut_share:.3g} % of the positions, {self.forwards} forward passes, "
                         f"{self.mode} mode{rate}")  # fmt: skip
        if self.filled:
            more = f" and {len(self.filled) - 4} more" if len(self.filled) > 4 else ""
            lines.append(f"  filled for the check, because they are zero: {', '.join(self.filled[:4])}{more}")
        lines += [f"  note: {one}" for one in self.notes]
        lines += [f"  not judged: {one.subject}: {one.id}: {one.text}" for one in self.reasons]
        return "\n".join(lines)

    __repr__ = __str__

    def to_dict(self):
        out = asdict(self)
        out.update(rule=self.rule if self.findings else None, level=self.level, strength=self.strength, cause=self.cause, message=self.message,
                   fix=self.fix, modules=self.modules)  # fmt: skip
        return out

    def to_json(self, **options):
        """Returns the verdict as JSON. Infinite values are strings."""
        plain = lambda v: (str(v) if isinstance(v, float) and v - v != 0 else {k: plain(x) for k, x in v.items()} if isinstance(v, dict)
                           else [plain(x) for x in v] if isinstance(v, (list, tuple)) else v)  # fmt: skip
        return json.dumps(plain(self.to_dict()), allow_nan=False, **options)

    def to_html(self):
        """Returns one HTML page without scripts or external files."""
        from .page import page

        return page(self)


def disabled():
    verdict = CausalityVerdict()
    verdict.reason("disabled", "nothing was run: PLUMBLINE_DISABLE is set")
    return verdict


def matrix_lines(matrix):
    """Returns the matrix as lines of text: '.' for 0, else the share in tenths ('9': 0.9 or more)."""
    width = len(str(matrix["positions"][-1][0]))
    lines = []
    for (first, _), shares in zip(matrix["positions"], matrix["moved"]):
        marks = "".join(" " if s is None else "." if s == 0 else str(max(1, min(9, int(10 * s)))) for s in shares)
        lines.append(f"{first:>{width}} {marks}")
    return lines
