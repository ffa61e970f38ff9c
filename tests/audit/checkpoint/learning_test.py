"""Parameters that do not learn, and files of other steps and ranks: faults of simulated runs, each with the tensor and the step.

PLUMB_LONG=1 tries all kinds, 10 seeds of faults and 22 of healthy folders. ONLY=NAME and SEEDS=N choose some.
"""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
try:
    import torch  # noqa: F401
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import audit, problems, serious
from learning_faults import FAULTS
from learning_healthy import HEALTHY
from learning_runs import Run

LONG = bool(os.environ.get("PLUMB_LONG"))


def short():
    """True without PLUMB_LONG, ONLY and SEEDS: then only a part of the kinds is tried."""
    return not (LONG or os.environ.get("ONLY") or os.environ.get("SEEDS"))


def names(where, text):
    return any(part in text for part in ([where] if isinstance(where, str) else where))


def matches(planted, finding, step):
    """True if a finding names the tensor, the rank or the file of the fault, and its step."""
    site = finding["site"]
    if step is not None and step not in (site["step_first"], site["step_last"]):
        return False
    if isinstance(planted.where, tuple) and planted.where[0] == "rank":
        return site["ranks"] == [planted.where[1]]
    if isinstance(planted.where, tuple) and planted.where[0] == "file":
        return False
    return names(planted.where, site["layer"] + str(finding["witness"]))


def found(planted, folder):
    """The rules, or "problem", that found the fault; and all findings."""
    planted.write(folder)
    _, report = audit(folder)
    step = None if planted.save is None else planted.run.step(planted.save)
    right = {f["rule"] for f in report["findings"] if f["level"] != "note" and matches(planted, f, step)}
    if isinstance(planted.where, tuple) and planted.where[0] == "file":
        texts = [p for i in report["inputs"] for p in i["problems"]]
        right |= {"problem" for p in texts if planted.where[1] in p.split("expected", 1)[-1] and str(step) in p}
    return right, report


def shown(report):
    return [(f["rule"], f["level"], f["title"], f["site"]["layer"], f["site"]["step_first"], f["site"]["step_last"], f["site"]["ranks"]) for f in report["findings"]]


class Faults(unittest.TestCase):
    def test_each_is_found(self):
        only, seeds = os.environ.get("ONLY"), range(int(os.environ.get("SEEDS", 10 if LONG else 1)))
        missed, count = [], 0
        for i, (name, make) in enumerate(FAULTS.items()):
            if (only and only not in name) or (short() and i % 2):
                continue
            hits = []
            for seed in seeds:
                with tempfile.TemporaryDirectory() as folder:
                    folder = pathlib.Path(folder) / "exp"
                    right, report = found(make(seed), folder)
                    hits.append(right)
                    count += 1
                if not right:
                    missed.append((name, seed, shown(report)))
            print(f"{sum(map(bool, hits))}/{len(hits)} {name}: {sorted(set().union(*hits))}", flush=True)
        for one in missed if only else []:
            print(one)
        print(f"{count - len(missed)} of {count} found")
        self.assertLessEqual(len(missed), count // 10)


class Poison(unittest.TestCase):
    def test_nan_elsewhere_hides_nothing(self):
        planted = FAULTS["a shard returns"](0)
        plant = planted.plant

        def poisoned(states):
            plant(states)
            for state in states[1:]:
                state[0]["model"]["model.layers.0.mlp.up_proj.weight"][3, 4] = float("nan")
            states[-1][0]["model"]["lm_head.weight"].fill_(float("inf"))

        planted.plant = poisoned
        with tempfile.TemporaryDirectory() as folder:
            right, report = found(planted, pathlib.Path(folder) / "exp")
        self.assertLessEqual({"health/unchanged-tensor"}, right)
        self.assertIn("precision/non-finite", {f["rule"] for f in report["findings"]})

    def test_few_checkpoints_are_inconclusive(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder) / "exp"
            Run("torch", 0, saves=2).write(folder)
            _, report = audit(folder)
        reasons = [v["reason"] for v in report["verdicts"] if v["rule"] == "health/unchanged-tensor" and v["site"]["op"] == "checkpoints"]
        self.assertEqual(reasons, ["few-checkpoints: fewer than 3"])


class Healthy(unittest.TestCase):
    def test_none_is_found(self):
        only, count = os.environ.get("ONLY"), int(os.environ.get("SEEDS", 22 if LONG else 1))
        folders, wrong = 0, []
        for make in HEALTHY:
            if (only and only not in make.__name__) or (short() and HEALTHY.index(make) % 4):
                continue
            for seed in range(count):
                with tempfile.TemporaryDirectory() as folder:
                    folder = pathlib.Path(folder) / "exp"
                    planted = make(seed)
                    planted.write(folder)
                    _, report = audit(folder)
                    folders += 1
                    found = [f for f in serious(report) if not (planted.resets and f[0] == "health/optimizer-state")]
                    if problems(report) or found:
                        wrong.append((make.__name__, seed, problems(report), found))
                        print(wrong[-1], flush=True)
        print(f"{folders} healthy folders, {len(wrong)} with a finding")
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
