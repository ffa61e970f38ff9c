"""causality/length-dependence: do rows differ if the sequence is cut off after them?"""

from .rounding import LEAK
from .axes import flat_rows
from .runs import distances
from .verdict import Finding
from .wide import NotWidened


def check_length(owner):
    """Compares the rows of a truncated input with those of the full one, in double."""
    case, runs = owner.case, owner.runs
    if owner.verdict.findings or case.documents is not None or bool(case.padding.any()) or runs.axes.flat or runs.axes.shift:
        return
    try:
        whole = runs.rows(case.tokens, wide="all")
        for shorter in sorted({case.length // 2, case.length - 1} - {0, 1}):
            inputs = runs._resized(1, case.length, shorter)
            part = runs.judged(case.tokens[:, :shorter], wide="all", inputs=inputs)
            part = flat_rows(part, runs.axes, case.batch, shorter)
            far = float(distances(whole[:, : part.shape[1]], part).max())
            if not far <= LEAK:
                owner.verdict.add(Finding("causality/length-dependence", "note", "proved", "input-length",
                                          f"rows of the first {shorter} tokens move by {far:.1e} if the {case.length - shorter} tokens after them are cut off",
                                          "if this is not intended, derive positions, scales and capacities from the row, not from the length",
                                          measured=far, threshold=LEAK))  # fmt: skip
                return
    except NotWidened as error:
        owner.verdict.reason("not-widened", f"the model does not run in double: {error}", "length-dependence")
