"""plumb audit on logs of reinforcement learning (rl_logs.py): each disaster has a finding of its rule, no healthy run has one above
a note."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import rl_ages
import rl_families
import rl_healthy
import rl_logs
import rl_pairs

PLUMB = pathlib.Path(os.environ["PLUMBLINE_BIN_DIR"]) / "plumb"
LONG = os.environ.get("PLUMB_LONG") == "1"
LEVELS = ("note", "warning", "error")


def findings(files):
    """Returns (rule, level) of each finding in a folder with these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (pathlib.Path(folder) / name).write_text(text)
        ended = subprocess.run([PLUMB, "audit", "--quiet", "--format", "json", folder], capture_output=True, text=True, timeout=120)
    return [(found["rule"], found["level"]) for found in json.loads(ended.stdout)["findings"]]


def fault_of(expected, found):
    """The reason why the findings differ from the expected ones; empty if they do not."""
    if expected is None:
        return "; ".join(f"{level} {rule}" for rule, level in found if level != "note")
    fit = any(rule == of and LEVELS.index(level) >= LEVELS.index(least) for rule, level in found for of, least in expected)
    return "" if fit else f"missed: {found}"


class Logs(unittest.TestCase):
    def test_disasters_and_healthy_runs(self):
        self.judge(rl_logs.cases(*((10, 10, 180) if LONG else (1, 1, 1))))

    def test_rewards_names_and_their_twins(self):
        cases = list(rl_families.cases(10 if LONG else 1))
        self.judge(cases if LONG else cases[::3])

    def test_ages_of_samples(self):
        self.judge(rl_ages.cases(40 if LONG else 4))

    def test_healthy_trainings(self):
        self.judge(rl_healthy.cases(180 if LONG else 1))

    def test_preferences(self):
        count = 1000 if LONG else 6
        accused = [name for name, _, files in rl_pairs.cases(count)
                   if any(rule == rl_pairs.COLLAPSE and level != "note" for rule, level in findings(files))]
        print(f"healthy preference trainings: {len(accused)} of {count} accused")
        self.assertLessEqual(len(accused), 0.005 * count, accused)
        each = 60 if LONG else 20
        for points, least in ((60, 0.4), (200, 0.6)) if LONG else ((60, 0.4),):
            cases = list(rl_pairs.faults(each, points))
            found = sum(not fault_of(expected, findings(files)) for _, expected, files in cases)
            print(f"inverted preferences, {points} points: {found} of {len(cases)}")
            self.assertGreaterEqual(found, least * len(cases))

    def judge(self, cases):
        faults, count = [], 0
        for name, expected, files in cases:
            count += 1
            fault = fault_of(expected, findings(files))
            if fault:
                faults.append(f"{name}: {fault}")
        print(f"{count} logs, {len(faults)} faults")
        self.assertEqual(faults, [])


if __name__ == "__main__":
    unittest.main()
