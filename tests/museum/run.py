"""run.py [--case REGEX] [--keep DIR] [--list]: trains what the museum holds and audits it. PLUMB_LONG=1: all of it, else a chosen few.

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

import harness  # noqa: E402
import plumbline  # noqa: E402

from faults import FAULTS  # noqa: E402
from healthy import RECIPES  # noqa: E402

SHORT = ("fault/language_nan_at_fifty", "fault/dropout_left_in_eval", "fault/classifier_never_cleared", "fault/classifier_two_heads_replaced", "healthy/language_accumulated", "healthy/dropout_validated")


def exhibit(name, make, kind, finds):
    def train(_):
        run = plumbline.init(run=name, record="record")
        result = make(kind).train(run)
        if not run.finish() and "PLUMBLINE_DISABLE" not in os.environ:
            raise harness.Wrong("run.finish() is false")
        return result

    train.__name__ = name
    return harness.Case(train, finds=finds, level="warning", opens=False)


def exhibits():
    for name, (make, kind) in RECIPES.items():
        yield exhibit(f"healthy/{name}", make, kind, {})
    for name, (make, kind) in FAULTS.items():
        yield exhibit(f"fault/{name}", make, kind, make.finds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default=".*")
    parser.add_argument("--keep")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [one for one in exhibits() if re.fullmatch(options.case, one.name)]
    if options.case == ".*" and os.environ.get("PLUMB_LONG") != "1":
        chosen = [one for one in chosen if one.name in SHORT]
    if options.list:
        print(*(one.name for one in chosen), sep="\n")
        return
    harness.CASES["run"] = chosen
    with tempfile.TemporaryDirectory(prefix="plumb-museum-", ignore_cleanup_errors=True) as folder:
        sys.exit(1 if harness.run_cases("run", ".*", options.keep or folder, True) else 0)


if __name__ == "__main__":
    sys.modules["run"] = sys.modules["__main__"]
    main()
