"""run.py [--case REGEX] [--keep DIR] [--list] [--budget SHARE]: trains what the museum holds and audits it. PLUMB_LONG=1: all of it, else a chosen few.

Each trainer runs in a process that is forked from this one: plain, and with the two lines. Both must compute the same to the bit; the
audit must find the fault by its rule at its step and nothing else above a note, and nothing at all in a healthy one.
"""

import argparse
import os
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("PLUMBLINE_BUILD_DIR", str(HERE.parents[1] / "build/dev"))
os.environ["OMP_NUM_THREADS"] = "1"
for name in [n for n in os.environ if n.startswith("PLUMBLINE_") and n != "PLUMBLINE_BUILD_DIR"]:
    del os.environ[name]
sys.path[:0] = [str(HERE.parent / "frameworks"), str(pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"]) / "python")]

try:
    import torch  # noqa: F401
except ImportError:
    print("skipped: there is no torch")
    sys.exit(77)

import harness  # noqa: E402
import plumbline  # noqa: E402

from faults import FAULTS  # noqa: E402
from healthy import RECIPES  # noqa: E402

BUDGET = 1.0  # a second of training: 1 % of it is few looks
SHORT = (
    "fault/language_nanatfifty", "fault/dropout_leftineval", "fault/classifier_nevercleared", "fault/classifier_twoheadsreplaced",
    "healthy/language_accumulated", "healthy/dropout_validated",
)


class Exhibit(harness.Case):
    """`also`: rules that may be found with those of `finds`, as consequences. A healthy one has none."""

    def __init__(self, train, finds, also):
        super().__init__(train, finds=finds, level="warning", opens=False)
        self.also = also


def exhibit(name, make, kind, finds, also=()):
    def train(_):
        run = plumbline.init(run=name, record="record", budget=BUDGET)
        result = make(kind).train(run)
        if not run.finish() and "PLUMBLINE_DISABLE" not in os.environ:
            raise harness.Wrong("run.finish() is false")
        return result

    train.__name__ = name
    return Exhibit(train, finds, also)


def exhibits():
    for name, (make, kind) in RECIPES.items():
        yield exhibit(f"healthy/{name}", make, kind, {}, ())
    for name, (make, kind) in FAULTS.items():
        yield exhibit(f"fault/{name}", make, kind, make.finds, make.also)


def check(one, folder):
    """Trains it twice; returns the problem, or None."""
    plain = harness.train("run", one, False, folder / "plain", True)
    watched = harness.train("run", one, True, folder / "watched", True)
    if plain != watched:
        return "the results with and without Plumbline differ"
    stderr, report = (folder / "watched/stderr").read_text(), harness.audit(folder / "watched")
    if not re.search(one.states, stderr, re.M) or "Traceback" in stderr:
        return f"stderr: {stderr[-300:]}"
    if [p for i in report["inputs"] for p in i["problems"]]:
        return f"the record is damaged: {report['inputs']}"
    found = {}  # each rule's first step
    for f in report["findings"]:
        if f["level"] in ("warning", "error"):
            found[f["rule"]] = min(found.get(f["rule"], f["site"]["step_first"]), f["site"]["step_first"])
    others = set(found) - set(one.finds) - set(one.also)
    wrong = {rule: step for rule, step in one.finds.items() if rule not in found or not fits(step, found[rule])}
    return f"found is {found}, expected {one.finds}" if others or wrong else None


def fits(expected, step):
    """`expected`: None, a step, or (first, last)."""
    first, last = expected if isinstance(expected, tuple) else (expected, expected)
    return expected is None or first <= step <= last


def run(chosen, folder):
    """Prints a line each; returns how many failed."""
    failed = 0
    for one in chosen:
        problem = check(one, pathlib.Path(folder) / one.name)
        failed += problem is not None
        print(f"ok      {one.name}" if problem is None else f"FAILED  {one.name}: {problem}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default=".*")
    parser.add_argument("--keep")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--budget", type=float, default=BUDGET, help="0.01: what a user gets")
    options = parser.parse_args()
    globals()["BUDGET"] = options.budget
    chosen = [one for one in exhibits() if re.fullmatch(options.case, one.name)]
    if options.case == ".*" and os.environ.get("PLUMB_LONG") != "1":
        chosen = [one for one in chosen if one.name in SHORT]
    if options.list:
        print(*(one.name for one in chosen), sep="\n")
        return
    harness.CASES["run"] = chosen
    with tempfile.TemporaryDirectory(prefix="plumb-museum-", ignore_cleanup_errors=True) as folder:
        sys.exit(1 if run(chosen, options.keep or folder) else 0)


if __name__ == "__main__":
    sys.modules["run"] = sys.modules["__main__"]
    main()
