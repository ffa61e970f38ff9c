"""Tests consequence.py: it trains each way, runs the weights causally, and reports what the leak was worth."""

import contextlib
import io
import json
import math
import os
import subprocess
import sys
import unittest

import torch

import support
import consequence
from data import IGNORED, TextBatches, VOCABULARY, load_documents
from model import Model
from routers import CAUSAL, POLICIES

SMALL = [option for option in support.TINY if option != "--quiet"] + ["--steps", "12", "--batches", "6"]
LEAKING = [policy for policy in POLICIES if policy not in CAUSAL]


def run(*options):
    """Returns (status, standard output, standard error) of the command. Runs it in this process, because importing
    torch is slow."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = consequence.main([*SMALL, *map(str, options)])
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), err.getvalue()


class Table(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with support.scratch() as folder:
            command = [sys.executable, support.EXAMPLE / "consequence.py", *SMALL, "--json", "rows.json"]
            cls.done = subprocess.run(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                timeout=support.PATIENCE,
                env=dict(os.environ, PYTHONPATH=str(support.REPOSITORY / "python")))
            if cls.done.returncode:
                raise AssertionError(cls.done.stderr)
            cls.rows = json.loads((folder / "rows.json").read_text())

    def row(self, router, causal):
        return next(r for r in self.rows if (r["router"], r["causal"]) == (router, causal))

    def test_every_router_is_run_with_every_causal_one(self):
        self.assertEqual([(r["router"], r["causal"]) for r in self.rows],
                         [(policy, causal) for policy in POLICIES for causal in CAUSAL])
        self.assertEqual(len(self.done.stdout.splitlines()), 1 + len(self.rows))

    def test_a_causal_model_run_as_it_learned_differs_in_no_bit(self):
        for policy in CAUSAL:
            row = self.row(policy, policy)
            self.assertEqual((row["difference"], row["moved_tokens"], row["moved_units"]), (0, 0, 0))
            self.assertEqual(row["training_loss"], row["causal_loss"])
            self.assertIsNone(row["interval"])
            self.assertIn("no loss differs", row["no_interval"])
        self.assertEqual(self.done.stdout.count("all equal"), len(CAUSAL))

    def test_a_leaking_model_has_a_difference_with_an_interval(self):
        for policy in LEAKING:
            for causal in CAUSAL:
                with self.subTest(policy=policy, causal=causal):
                    row = self.row(policy, causal)
                    low, high = row["interval"]
                    self.assertLess(low, row["difference"])
                    self.assertLess(row["difference"], high)
                    self.assertTrue(math.isfinite(low) and math.isfinite(high))
                    self.assertEqual((row["level"], row["unit"], row["units"]), (0.99, "pool", 6))
                    self.assertGreater(row["moved_tokens"], 0)
                    self.assertAlmostEqual(row["difference"],
                                           row["training_loss"] - row["causal_loss"], places=12)
                    self.assertAlmostEqual(sum(p["share"] for p in row["by_position"]), 1)

    def test_all_see_the_same_text(self):
        self.assertEqual(len({(r["tokens"], r["sequences"], r["units"], r["steps"], r["seed"])
                              for r in self.rows}), 1)
        # Every token with a target, and no other.
        batches = TextBatches(load_documents()[::10], 4, 32, "packed", 500_000, steps=6)
        tokens = sum((batches[i].targets != IGNORED).sum().item() for i in range(6))
        self.assertEqual(self.rows[0]["tokens"], tokens)
        self.assertEqual(self.row("score-drop", "fifo")["training_loss"],
                         self.row("score-drop", "dropless")["training_loss"])


class Command(unittest.TestCase):
    def test_the_arguments_alone_decide(self):
        with support.scratch() as folder:
            texts = []
            for number in range(2):
                file = folder / f"{number}.json"
                run("--routers", "score-drop", "--seed", 3, "--json", file)
                texts.append(file.read_text())
        self.assertEqual(*texts)

    def test_nonsense_is_refused_with_what_was_expected(self):
        for options, stated in ((["--routers", "switch"], "invalid choice: 'switch'"),
                              (["--batches", "0"], "expected >= 1"),
                              (["--level", "99"], "expected between 0 and 1"),
                              (["--router", "fifo"], "expected --routers"),
                              (["--launch=2"], "one rank"),
                              (["--dims", "3"], "unrecognized arguments")):
            with self.subTest(options):
                status, _, error = run(*options)
                self.assertEqual(status, 2)
                self.assertIn(stated, error)


class Switched(unittest.TestCase):
    SEQUENCES, LENGTH = 3, 24

    def model(self, policy):
        torch.manual_seed(3)
        return Model(VOCABULARY, self.LENGTH, dim=16, layers=2, experts=4, top_k=2, policy=policy,
                     capacity_factor=1.0)

    @torch.no_grad()
    def logits(self, model, batch, tokens):
        return model(tokens, batch.sequence_id, batch.position)[0]

    def test_leaking_weights_run_causally_do_not_see_later_tokens(self):
        batch = TextBatches(load_documents(), self.SEQUENCES, self.LENGTH, "window", seed=3)[0]
        random = torch.Generator().manual_seed(0)
        for policy in LEAKING:
            model = self.model(policy)
            for other in (policy, *CAUSAL):
                with self.subTest(trained=policy, run=other), model.routed_by(other):
                    base, moved = self.logits(model, batch, batch.tokens), False
                    for cut in range(1, self.LENGTH):
                        changed = batch.tokens.clone()
                        changed[1, cut:] = torch.randint(32, 127, (self.LENGTH - cut,), generator=random)
                        # Experts with other row counts may round differently; a leak changes far more.
                        far = (self.logits(model, batch, changed) - base)[1, :cut].abs().max() > 1e-5
                        moved = moved or bool(far)
                    self.assertEqual(moved, other not in CAUSAL)

    def test_the_switch_holds_for_every_layer_and_ends(self):
        batch = TextBatches(load_documents(), self.SEQUENCES, self.LENGTH, "window", seed=3)[0]
        model = self.model("expert-choice")

        def used():
            return {(r.policy, r.normalised)
                    for r in model(batch.tokens, batch.sequence_id, batch.position)[1]}

        with self.assertRaises(ZeroDivisionError), model.routed_by("dropless"):
            self.assertEqual(used(), {("dropless", False)})  # the weights are those of the training
            raise ZeroDivisionError
        self.assertEqual(used(), {("expert-choice", False)})


if __name__ == "__main__":
    support.main()
