"""plumb learn and plumb audit --invariants: false alarms on held-back healthy runs of simulated families and of a real trainer, the share of
planted faults that are found, and bad input. PLUMB_LONG=1 takes more runs; PLUMB_TABLE=1 prints the tables of docs/invariants.md."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import learn_families
import learn_trainer

PLUMB = pathlib.Path(os.environ["PLUMBLINE_BIN_DIR"]) / "plumb"
LONG = bool(os.environ.get("PLUMB_LONG"))
TABLE = bool(os.environ.get("PLUMB_TABLE"))


class Learned(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "invariants.toml"

    def plumb(self, *arguments):
        return subprocess.run([PLUMB, *map(str, arguments)], capture_output=True, text=True, timeout=600)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def learn(self, texts, *options):
        paths = [self.write(f"healthy{i}.csv", text) for i, text in enumerate(texts)]
        done = self.plumb("learn", "--quiet", *options, *paths, "-o", self.file)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def hold(self, text):
        """Returns the finding of the run; None if it passes."""
        done = self.plumb("audit", "--quiet", "--format", "json", "--rules", "user/*", "--invariants", self.file, self.write("run.csv", text))
        report = json.loads(done.stdout)
        verdicts = [v for v in report["verdicts"] if v["rule"] == "user/invariants"]
        self.assertEqual(len(verdicts), 1, report)
        self.verdict = verdicts[0]
        return next((f for f in report["findings"] if f["rule"] == "user/invariants"), None)


class FalseAlarms(Learned):
    def test_families(self):
        learned, held_back = 10, 200 if LONG else 24
        alarms, runs = 0, 0
        for family in learn_families.FAMILIES:
            self.learn([learn_families.run(family, seed) for seed in range(learned)])
            found = [f for f in (self.hold(learn_families.run(family, 1000 + seed)) for seed in range(held_back)) if f is not None]
            if TABLE:
                print(f"| {family} | {self.file.read_text().count('[[invariant]]')} | {len(found)} of {held_back} |")
                print(*(f["explanation"] for f in found), sep="\n")
            alarms, runs = alarms + len(found), runs + held_back
        self.assertLessEqual(alarms, 0.01 * runs)

    def test_trainer(self):
        self.learn([learn_trainer.train(seed) for seed in range(10)])
        runs = 200 if LONG else 30
        found = [f for f in (self.hold(learn_trainer.train(1000 + seed)) for seed in range(runs)) if f is not None]
        if TABLE:
            print(f"| trainer | {self.file.read_text().count('[[invariant]]')} | {len(found)} of {runs} |")
            print(*(f["explanation"] for f in found), sep="\n")
        self.assertLessEqual(len(found), 0.01 * runs)


class Faults(Learned):
    def test_trainer(self):
        self.learn([learn_trainer.train(seed) for seed in range(10)])
        seeds = range(2000, 2010 if LONG else 2002)
        missed = set()
        for fault, words in learn_trainer.FAULTS.items():
            found = [self.hold(learn_trainer.train(seed, fault, onset)) for seed in seeds for onset in (0, 100)]
            hits = [f for f in found if f is not None]
            if TABLE:
                first = hits[0]["explanation"].split(". ")[0] if hits else "-"
                print(f"| `{fault}` | {words} | {len(hits)} of {len(found)} | {first} |")
            if 2 * len(hits) < len(found):
                missed.add(fault)
        self.assertLessEqual(missed, {"same-data", "eval-mode"})

    def test_series(self):
        """One fault per kind of invariant."""
        def change(name, value, rank=None):
            def plant(i, of, row):
                if i >= 120 and rank in (None, of):
                    row[name] = value(i, row[name])
            return plant
        cases = {"range": ("grad_norm", lambda i, x: x * 30, None), "finite": ("lm_loss", lambda i, x: float("nan"), None),
                 "never-falls": ("tokens", lambda i, x: x - 3 * 65536 if i == 120 else x, None),
                 "ranks-equal": ("lr", lambda i, x: x * 1.0001, 1)}
        self.learn([learn_families.run("language", seed) for seed in range(8)])
        for kind, (name, value, rank) in cases.items():
            found = self.hold(learn_families.run("language", 77, change=change(name, value, rank)))
            self.assertIsNotNone(found, kind)
            self.assertEqual((found["cause"]["id"], found["site"]["op"], found["site"]["step_first"]), (kind, name, 120))
            self.assertEqual((found["level"], found["strength"], found["false_alarm"]["kind"]), ("warning", "heuristic", "measured"))

        same = []
        def still(i, rank, row):
            if i >= 120:
                row["lm_loss"] = same[0]
            elif i == 119 and not same:
                same.append(row["lm_loss"])
        found = self.hold(learn_families.run("language", 78, change=still))
        self.assertIn(found["cause"]["id"], ("moves", "ranks-differ"))
        self.assertLessEqual(found["site"]["step_first"], 125)


class Input(Learned):
    def learn_fails(self, *arguments):
        done = self.plumb("learn", "--quiet", *arguments, "-o", self.file)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertFalse(self.file.exists())
        return done.stderr

    def test_runs(self):
        paths = [self.write(f"r{i}.csv", learn_families.run("heavy", i, 40)) for i in range(5)]
        for few in range(1, 4):
            self.assertIn(f"expected at least 4 healthy runs (bounds are confirmed on runs that are held back), found {few}",
                          self.learn_fails(*paths[:few]))
        self.assertIn("missing.csv", self.learn_fails(*paths, self.folder / "missing.csv"))
        self.assertIn("byte", self.learn_fails(*paths, self.write("other.bin", "\x01\x02 nothing")))
        sick = self.write("sick.csv", learn_families.run("heavy", 9, 40).rsplit("\n", 6)[0] + "\n39,0,nan,nan\n40,0,nan,nan\n41,0,nan,nan\n")
        self.assertIn("expected a healthy run, found an error of health/loss-non-finite", self.learn_fails(*paths, sick))
        self.assertEqual(self.plumb("learn", "--quiet", "--allow-findings", *paths, sick, "-o", self.file).returncode, 0)
        self.file.unlink()
        short = [self.write(f"s{i}.csv", learn_families.run("heavy", i, 4)) for i in range(5)]
        self.assertIn("found no relation", self.learn_fails(*short))

    def test_file(self):
        self.learn([learn_families.run("language", seed, 60) for seed in range(5)])
        good, log = self.file.read_text(), self.write("run.csv", learn_families.run("language", 99, 60))
        changes = {"no file": None, "TOML": good.replace("low = ", "low == ", 1), "schema": good.replace("invariants/1", "invariants/9"),
                   "kind": good.replace('kind = "range"', 'kind = "rang"', 1), "low and high": good.replace("low = ", 'low = "x" #', 1),
                   "in order": good.replace("low = ", "low = nan #", 1), "from_step": good.replace("from_step = 0", "from_step = -3", 1),
                   "series": good.replace('series = "', 'series = "" #', 1), "alarms": good.replace("held_back = 5", "held_back = 0", 1),
                   "at least one": good.split("\n[[invariant]]")[0], "UTF-8": good.replace("language", "x") + "# \udcff"}
        for words, text in changes.items():
            self.file.unlink(missing_ok=True)
            if text is not None:
                self.file.write_bytes(text.encode("utf-8", "surrogateescape"))
            done = self.plumb("audit", "--quiet", log, "--invariants", self.file)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn("plumb: --invariants: ", done.stderr)
            if words not in ("no file", "UTF-8"):
                self.assertIn(words, done.stderr)
        done = self.plumb("audit", "--quiet", log, "--invariants", self.file, "--follow")
        self.assertEqual((done.returncode, done.stderr), (2, "plumb: --invariants: expected no --follow, --send or --server with it\n"))

    def test_no_shared_series(self):
        self.learn([learn_families.run("policy", seed, 60) for seed in range(5)])
        self.assertIsNone(self.hold("step,perplexity\n" + "".join(f"{i},{30 - i / 10}\n" for i in range(60))))
        self.assertEqual((self.verdict["verdict"], self.verdict["reason"].split(":")[0]), ("inconclusive", "no-shared-series"))

    def test_order_of_the_runs(self):
        """The file does not depend on the order of the runs."""
        texts = [learn_families.run("scaled", seed, 80) for seed in range(6)]
        self.learn(texts)
        first = self.file.read_text()
        self.learn(texts[::-1])
        self.assertEqual(self.file.read_text(), first)


if __name__ == "__main__":
    unittest.main()
