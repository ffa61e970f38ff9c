"""Compares the finding in README.md with the output of tools/demo."""

import itertools
import math
import pathlib
import re

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def finding_of_readme():
    return re.search(r"^```text\n(error  causality/moe-future-leak.*?)^```", README.read_text(), re.M | re.S).group(1)


def alike(a, b):
    """Returns True if two words are equal; fractions may differ by what another processor's sums differ."""
    try:
        return a == b or ("." in a and math.isclose(float(a.strip("(,;.")), float(b.strip("(,;.")), rel_tol=1e-3))
    except ValueError:
        return False


def differences(printed, finding):
    """Returns the pairs of words in which the first printed finding differs from `finding`.

    It is printed live: if the second rank's evidence has not come yet, it names rank 0 and not ranks 0-1.
    """
    expected = finding.split()
    live = printed[printed.find("error  causality/moe-future-leak"):].replace("rank 0, run", "ranks 0-1, run", 1)
    return [pair for pair in itertools.zip_longest(expected, live.split()[:len(expected)], fillvalue="") if not alike(*pair)]
