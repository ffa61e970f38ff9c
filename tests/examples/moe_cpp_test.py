"""Tests the C++ trainer: it learns, its probes change nothing, and its findings are those of the Python trainer's
routers of the same names."""

import re
import subprocess
import unittest

import support

FUTURE, BATCH = "causality/moe-future-leak", "causality/moe-batch-dependence"
ROUTERS = ("dropless", "fifo", "score-drop")
LAYERS = ("layers.0", "layers.1")


def train(*options, status=0):
    done = subprocess.run([support.program("moe_cpp"), *map(str, options)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=support.PATIENCE)
    if done.returncode != status:
        raise AssertionError(f"moe_cpp ended with {done.returncode}; it printed:\n{done.stdout}")
    return done.stdout


def losses(output):
    return re.findall(r"step +\d+  loss (\S+)", output)


def stated(report, rule):
    """Returns the essential fields of a rule's findings: where, how strong, why."""
    return {(f["site"]["layer"], f["strength"], f["level"], f["cause"]["id"],
             f["details"]["policy"]) for f in support.findings_of(report, rule)}


class CppTrainer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.audits, cls.python, cls.output = {}, {}, {}
        with support.scratch() as folder:
            for router in ROUTERS:
                record = folder / router
                cls.output[router] = train("--router", router, "--steps", 12, "--run", router,
                                           "--record", record, "--patience", 200000)
                cls.audits[router] = support.audit(record)
                support.train("--router", router, "--steps", 12, "--run", router,
                              "--record", folder / f"py-{router}", "--batch", 8, "--seq", 96,
                              "--patience", support.PATIENCE)
                cls.python[router] = support.audit(folder / f"py-{router}")

    def test_records_are_whole(self):
        for router in ROUTERS:
            report = self.audits[router][1]
            self.assertEqual([i["problems"] for i in report["inputs"] if i["problems"]], [])
            self.assertEqual(report["coverage"]["dropped"], 0)

    def test_dropless_and_first_come_pass(self):
        for router in ("dropless", "fifo"):
            status, report = self.audits[router]
            self.assertEqual(status, 0)
            for layer in LAYERS:
                verdicts = support.verdicts_of(report, FUTURE, layer)
                self.assertEqual({v["verdict"] for v in verdicts}, {"pass"}, (router, verdicts))

    def test_drop_by_score_is_proved_to_leak(self):
        status, report = self.audits["score-drop"]
        self.assertEqual(status, 1)
        self.assertEqual(stated(report, FUTURE),
                         {(layer, "proved", "error", "drop-by-score", "score-capacity")
                          for layer in LAYERS})

    def test_the_python_trainer_is_reported_the_same(self):
        for router in ROUTERS:
            for rule in (FUTURE, BATCH):
                with self.subTest(router=router, rule=rule):
                    self.assertEqual(stated(self.audits[router][1], rule),
                                     stated(self.python[router][1], rule))

    def test_it_learns(self):
        out = train("--router", "dropless", "--steps", 60)
        first, last = float(losses(out)[0]), float(losses(out)[-1])
        self.assertLess(abs(first - 5.545), 0.6)  # ln 256: it has learned nothing yet
        self.assertLess(last, first - 1.5)

    def test_probes_change_nothing(self):
        self.assertEqual(losses(train("--router", "score-drop", "--steps", 12)),
                         losses(self.output["score-drop"]))

    def test_wrong_options_are_stated(self):
        self.assertIn("expected dropless, fifo or score-drop", train("--router", "x", status=2))
        self.assertIn("expected 1 to", train("--experts", "0", status=2))
        self.assertIn("expected an option and its value", train("--steps", status=2))
        self.assertRegex(train("--stepz", "3", status=2),
                         "expected one of --router, --steps, .*, found --stepz; see moe_cpp --help")
        self.assertIn("found steps", train("steps", "3", status=2))

    def test_help_names_every_option(self):
        for request in (["--help"], ["-h"], ["--steps", "3", "--help"]):
            stated = train(*request)
            self.assertTrue(stated.startswith("Usage: moe_cpp"), stated)
            self.assertNotIn("parameters,", stated)  # nothing is trained
        options = re.findall(r"^  --([a-z-]+) ", stated, re.M)
        self.assertIn("router", options)
        self.assertIn("--steps     how many to train (100)", stated)
        unknown = train("--nonsense", status=2)
        for option in options:
            self.assertIn(f"--{option}", unknown)


if __name__ == "__main__":
    support.main()
