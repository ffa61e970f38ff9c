"""plumb audit and plumb diff on console logs of trained fine-tunings: every faulty one is reported by the right rule,
no healthy one above a note."""

import json
import os
import pathlib
import subprocess
import unittest

import fine_tunings

PLUMB = pathlib.Path(os.environ["PLUMBLINE_BIN_DIR"]) / "plumb"
LEVELS = ("note", "warning", "error")


def findings(path):
    ended = subprocess.run([PLUMB, "audit", "--quiet", "--format", "json", path], capture_output=True, text=True, timeout=120)
    return [(f["level"], f["rule"], f["site"]["op"], f["cause"]["id"]) for f in json.loads(ended.stdout)["findings"]]


class FineTunings(unittest.TestCase):
    def logs(self, labels):
        logs = [p for p in sorted(fine_tunings.FOLDER.glob("*.log"))
                if fine_tunings.label_of(p) == labels or (labels == "healthy" and p.stem.startswith("healthy"))]
        self.assertTrue(logs)
        return logs

    def test_healthy_ones(self):
        for path in self.logs("healthy"):
            with self.subTest(path.stem):
                self.assertEqual([f for f in findings(path) if f[0] != "note"], [])

    def test_faulty_ones(self):
        for label, expected in fine_tunings.LABELS.items():
            if expected is None:
                continue
            least, rules = expected
            for path in self.logs(label):
                with self.subTest(path.stem):
                    found = findings(path)
                    self.assertTrue([f for f in found if f[1] in rules and LEVELS.index(f[0]) >= LEVELS.index(least)], found)

    def test_those_that_only_a_comparison_shows(self):
        for label, worse in fine_tunings.DIFFS.items():
            for path in self.logs(label):
                with self.subTest(path.stem):
                    ended = subprocess.run([PLUMB, "diff", "--quiet", "--fail-on", "error", fine_tunings.healthy_of(path), path],
                                           capture_output=True, text=True, timeout=120)
                    self.assertEqual(ended.returncode, 1 if worse else 0, ended.stdout[-600:])


if __name__ == "__main__":
    unittest.main()
