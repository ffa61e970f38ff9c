"""Checkpoints with long lists of plain numbers and texts next to their tensors: loss histories, the order of the data,
vocabularies."""

import collections
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
try:
    import torch
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import InAFolder, PLUMB, audit, notes, problems, train
from hostile_test import LONG, measured

KEPT = 1 << 19  # PickleLimits::plain
N = KEPT + 20_000
REPORTED = "plain values of long lists, which were counted but not stored"


def history(n=N, at=None):
    values = [i % 250 for i in range(n)]
    if at is not None:
        values[at] = 251
    return values


class Read(InAFolder):
    def test_what_lies_next_to_it_is_judged(self):
        def plant(step, model, optimizer, checkpoint):
            rest = dict(checkpoint)
            checkpoint.clear()
            checkpoint["trainer"] = {"losses": history(), "epoch": 1}  # before the tensors
            checkpoint.update(rest)
            checkpoint["tokenizer"] = {"vocabulary": {f"word{i}": i for i in range(3000)}}
            if step == 12:
                checkpoint["model"] = {k: v.clone() for k, v in checkpoint["model"].items()}
                checkpoint["model"]["layers.0.weight"][1, 2] = float("nan")

        train(self.folder, saves=2, every=6, plant=plant)
        status, report = audit(self.folder)
        self.assertEqual(status, 1)
        self.assertEqual(problems(report), "")
        found = {(f["rule"], f["site"]["layer"], f["site"]["step_first"]) for f in report["findings"] if f["level"] != "note"}
        self.assertEqual(found, {("precision/non-finite", "layers.0.weight", 12)})
        self.assertEqual(notes(report).count("plain values of trainer.losses, tokenizer.vocabulary"), 2)
        self.assertIn("counted but not stored: ", notes(report))

    def test_an_optimizers_parameters_are_kept(self):
        """They name its state, for a list of any length, and after any long list."""
        names = [f"layers.{i}.weight" for i in range(600)]
        weights = {name: torch.ones(i + 1) for i, name in enumerate(names)}
        state = {i: {"exp_avg": torch.ones(i + 1), "exp_avg_sq": torch.ones(i + 1), "step": 5} for i in range(600)}
        groups = [{"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "params": list(range(600))}]
        path = self.save({"losses": history(), "model": weights, "optimizer": {"state": state, "param_groups": groups}})
        status, report = audit(path)
        self.assertEqual(status, 0)
        self.assertIn("optimizer state: 600 of 600 parameters named by order and shape", notes(report))

    def test_memory(self):
        """Bounded for any pickle: at most 64 MiB of it are read."""
        for name, value in {
            "numbers": lambda: [i % 250 for i in range(20_000_000 if LONG else 2_100_000)],
            "words": lambda: {f"w{i}": i for i in range(2_900_000)},
            "pairs": lambda: [(i, i) for i in range(2_000_000)],
        }.items():
            if not LONG and name != "numbers":
                continue
            path = self.save({"model": {"w.a": torch.ones(4, 4)}, "long": value()})
            status, kilobytes, _ = measured("audit", path)
            self.assertEqual(status, 0)
            self.assertLess(kilobytes, (256 if LONG else 160) << 10)
            print(f"{name}: {kilobytes >> 10} MiB")


class Equal(InAFolder):
    def diff(self, a, b):
        model = {"w.a": torch.ones(3)}
        paths = [self.save({**before, "model": model, **after}, name) for (before, after), name in ((a, "a.pt"), (b, "b.pt"))]
        done = subprocess.run([PLUMB, "diff", *map(str, paths), "--expect-equal"], capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout

    def test_of_one_trainer(self):
        """The same bytes at the same position are the same values; other bytes may be."""
        long = history()
        words = {f"w{i}": i for i in range(N // 2)}
        for name, a, b, expected, stated in (
            ("same", long, history(), 0, "equal: "),
            ("at the end", long, history(at=N - 1500), 2, "not decided: "),
            ("at the begin", long, history(at=5), 1, "first difference: long.5: 5 in A, 251 in B"),
            ("longer", long, history(N + 1), 1, f"first difference: long: a list of {N} in A, a list of {N + 1} in B"),
            ("words", collections.Counter(words), collections.Counter(words), 0, "equal: "),
            ("another word", words, {**words, f"w{N // 2 - 1500}": 0}, 2, "not decided: "),
            ("a word that is kept", words, {**words, "w7": 0}, 1, "first difference: long.w7: 7 in A, 0 in B"),
            ("sets", set(range(N)), set(range(N)), 0, "equal: "),
            ("deque", collections.deque(long), collections.deque(history(at=N - 1500)), 2, "not decided: "),
        ):
            with self.subTest(name):
                status, out = self.diff(({}, {"long": a}), ({}, {"long": b}))
                self.assertEqual(status, expected, out)
                self.assertIn(stated, out)
                self.assertEqual(f"not compared: long: {REPORTED}" in out, expected == 2 or "not compared" in out, out)

    def test_what_one_side_keeps(self):
        """Space that another value used up is not a difference; values known on both sides are compared."""
        long = history(N // 2)
        status, out = self.diff(({}, {"long": long}), ({"before": history()}, {"long": long}))
        self.assertEqual(status, 2, out)
        self.assertIn(f"not compared: long: {REPORTED}", out)
        words = {f"w{i}": i for i in range(N // 3)}
        for other, expected in ((words, 2), ({**words, "w0": 1}, 2)):
            status, out = self.diff(({}, {"words": words}), ({"before": history()}, {"words": other}))
            self.assertEqual(status, expected, out)
        status, out = self.diff(({}, {"long": long, "lr": 1}), ({"before": history()}, {"long": long, "lr": 2}))
        self.assertEqual(status, 1, out)
        self.assertIn("first difference: lr: 1 in A, 2 in B", out)

    def test_what_one_side_has_alone(self):
        status, out = self.diff(({}, {"long": {"a": history()}}), ({}, {}))
        self.assertEqual(status, 0, out)
        self.assertIn("not compared: only A contains 1 value (long.a)", out)

    def test_the_outermost_dict(self):
        words = {f"w{i}": i for i in range(N)}
        paths = [self.save(words, name) for name in ("a.pt", "b.pt")]
        done = subprocess.run([PLUMB, "diff", *map(str, paths), "--expect-equal"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("outermost dict, which were counted but not stored", done.stdout)


if __name__ == "__main__":
    unittest.main()
