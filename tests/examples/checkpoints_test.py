"""Audits the checkpoints of the example trainer: healthy ones have no finding, and each fault is named."""

import json
import subprocess
import unittest

import support

TRAINER = support.REPOSITORY / "examples" / "checkpoints" / "train.py"


def audited(*options):
    """Returns (exit status, report) of the checkpoints of one training."""
    with support.scratch() as folder:
        done = subprocess.run([support.warm.python(), "-W", "ignore", str(TRAINER), str(folder / "exp"), "--quiet", *options],
                              capture_output=True, text=True, timeout=support.PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        reported = subprocess.run([support.program("plumb"), "audit", str(folder), "--format", "json", "--quiet"],
                              capture_output=True, text=True, timeout=support.PATIENCE)
        return reported.returncode, json.loads(reported.stdout)


def warned(report):
    return {f["rule"] for f in report["findings"] if f["level"] != "note"}


class Checkpoints(unittest.TestCase):
    def test_healthy_ones_are_silent(self):
        for kind in ("plain", "ddp", "ema", "resumed", "bf16"):
            with self.subTest(kind):
                status, report = audited("--kind", kind, "--steps", "120", "--every", "20")
                stated = [(f["rule"], f["title"], f["site"]) for f in report["findings"] if f["level"] != "note"]
                self.assertEqual((status, stated), (0, []))
                self.assertEqual([i["problems"] for i in report["inputs"] if i["problems"]], [])
                self.assertEqual(len(report["inputs"]), 12 if kind == "ddp" else 6)
                self.assertTrue(all(i["format"] == "checkpoint" and i["records"] > 20 for i in report["inputs"]))
                self.assertGreater(report["coverage"]["judged"], 10)

    def test_each_fault_is_named(self):
        long = ["--steps", "1600", "--every", "400", "--width", "48"]
        for kind, fault, rule, more in (("resumed", "optimizer", "health/optimizer-state", []), ("resumed", "schedule", "health/optimizer-state", []),
                                        ("bf16", "masters", "health/optimizer-state", []), ("ema", "average", "precision/ema-stall", long)):
            with self.subTest(fault):
                _, report = audited("--kind", kind, "--fault", fault, *more)
                self.assertIn(rule, warned(report), [(f["rule"], f["level"], f["title"]) for f in report["findings"]])


if __name__ == "__main__":
    support.main()
