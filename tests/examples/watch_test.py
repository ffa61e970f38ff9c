"""The smallest example: two lines, the same losses to the bit, no finding for a healthy run, and each fault is named
where it begins."""

import subprocess
import unittest

import support

TRAINER = support.REPOSITORY / "examples" / "watch_pytorch" / "train.py"


def train(*options):
    """Returns every loss with all of its bits."""
    done = subprocess.run([support.warm.python(), str(TRAINER), "--exact", *map(str, options)], capture_output=True, text=True,
                          timeout=support.PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


class Watch(unittest.TestCase):
    def test_a_healthy_run_is_silent_and_the_same(self):
        with support.scratch() as folder:
            watched = train("--steps", 80, "--record", folder / "runs")
            self.assertEqual(watched, train("--steps", 80))
            _, report = support.audit(folder / "runs")
            self.assertEqual(report["findings"], [])
            passed = {v["rule"] for v in report["verdicts"] if v["verdict"] == "pass"}
            self.assertLessEqual({"health/unchanged-tensor", "precision/non-finite", "precision/lost-update"}, passed)

    def test_each_fault_is_named(self):
        named = {"no-zero-grad": (30, "precision/stale-gradient", ""), "left-out": (60, "health/unchanged-tensor", "blocks.1."),
                 "rate-zero": (40, "health/learning-rate", ""), "nan": (40, "precision/non-finite", "blocks.1.perceptron.0.weight")}
        for fault, (steps, rule, where) in named.items():
            with self.subTest(fault), support.scratch() as folder:
                train("--steps", steps, "--record", folder / "runs", "--fault", fault)
                found = [f for f in support.audit(folder / "runs")[1]["findings"] if f["rule"] == rule]
                self.assertGreater(len(found), 0)
                self.assertEqual([f for f in found if not f["site"]["layer"].startswith(where)], [])
                if fault == "nan":
                    self.assertEqual(found[0]["site"]["step_first"], 30)


if __name__ == "__main__":
    support.main()
