"""The finding that README.md shows, held against what tools/demo prints."""

import itertools
import math
import pathlib
import re

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def finding_of_readme():
    return re.search(r"^```text\n(error  causality/moe-future-leak.*?)^```", README.read_text(), re.M | re.S).group(1)


def alike(a, b):
    """Two words: the same, but fractions may differ by what another processor's sums differ."""
    try:
        return a == b or ("." in a and math.isclose(float(a.strip("(,;.")), float(b.strip("(,;.")), rel_tol=1e-3))
    except ValueError:
        return False


def differences(printed, finding):
    """The pairs of words in which the first finding that was printed differs from `finding`.

    It is printed live: when the second rank's evidence has not come yet, it names rank 0 and not ranks 0-1.
    """
    expected = finding.split()
    live = printed[printed.find("error  causality/moe-future-leak"):].replace("rank 0, run", "ranks 0-1, run", 1)
    return [pair for pair in itertools.zip_longest(expected, live.split()[:len(expected)], fillvalue="") if not alike(*pair)]
