"""plumb audit on what a log prints besides plain rows: names without a value, zeros with an exponent, bars of an epoch
that did not end, blocks of metrics, and literals. Each family has a twin that stays silent."""

import itertools
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

PLUMB = pathlib.Path(os.environ["PLUMBLINE_BIN_DIR"]) / "plumb"


def audit(text, name="train.log"):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / name
        path.write_text(text, newline="")
        ended = subprocess.run([PLUMB, "audit", "--quiet", "--format", "json", path], capture_output=True, text=True, timeout=60)
    return json.loads(ended.stdout)


def above_notes(report):
    return {(f["level"], f["rule"], f["site"].get("op", "")) for f in report["findings"] if f["level"] != "note"}


def series(report):
    return {s["name"]: s["points"] for i in report["inputs"] for s in i.get("series", [])}


def notes(report):
    return " ".join(note for i in report["inputs"] for note in i.get("notes", []))


def losses(count, seed=3):
    rng = random.Random(seed)
    return [(0.7 + 1.8 * math.exp(-4 * i / count)) * math.exp(0.02 * rng.gauss(0, 1)) for i in range(count)]


ROWS = {
    "words": lambda step, loss: f"step {step}: loss: {loss}, lr: 1.5e-4\n",
    "signs": lambda step, loss: f"step={step} loss={loss} lr=1.5e-4\n",
    "epochs": lambda step, loss: f"Epoch {step}/200 | Train Loss: {loss} | Acc: 0.5\n",
    "dictionary": lambda step, loss: f"{{'loss': {loss}, 'lr': 1.5e-4, 'step': {step}}}\n",
}
WORDS = {"words": ("null", "None", "--", "N/A"), "signs": ("null", "None", "N/A"), "epochs": ("None", "N/A", "--"), "dictionary": ("None", "null")}


class NamesWithoutAValue(unittest.TestCase):
    def test_a_loss_that_stops_having_a_value_is_a_warning(self):
        for kind, count in itertools.product(ROWS, (13, 60)):
            for word in WORDS[kind]:
                values = [f"{v:.4f}" for v in losses(count)]
                values[-8:] = [word] * 8
                with self.subTest(kind, word=word, count=count):
                    report = audit("".join(ROWS[kind](i + 1, v) for i, v in enumerate(values)))
                    found = {(level, rule) for level, rule, _ in above_notes(report)}
                    self.assertEqual(found, {("warning", "health/loss-non-finite")})

    def test_a_loss_that_is_absent_between_others_is_none(self):
        for kind in ROWS:
            for word in WORDS[kind]:
                for absent in (lambda i: i % 3 != 0, lambda i: i < 10, lambda i: 20 <= i < 30):
                    values = [word if absent(i) else f"{v:.4f}" for i, v in enumerate(losses(40))]
                    with self.subTest(kind, word=word):
                        report = audit("".join(ROWS[kind](i + 1, v) for i, v in enumerate(values)))
                        self.assertEqual(above_notes(report), set())


RATES = {"megatron": "0.000000E+00", "percent_e": "0.000e+00", "short": "0.00e+00", "percent_g": "0"}


class ZerosThatWereNotRounded(unittest.TestCase):
    def text(self, zero, loss, first=0, rows=40):
        rng = random.Random(7)
        return "".join(f"step {10 * i} loss {loss(i) * math.exp(0.02 * rng.gauss(0, 1)):.3f} lr {zero if i >= first else '1.200e-04'}\n" for i in range(rows))

    def test_a_rate_of_zero_is_an_error(self):
        for name, zero in RATES.items():
            for first in (0, 20):
                with self.subTest(name, first=first):
                    found = {(level, rule) for level, rule, _ in above_notes(audit(self.text(zero, lambda i: 2.4, first)))}
                    self.assertIn(("error", "health/learning-rate"), found)

    def test_in_tables(self):
        for name, zero in RATES.items():
            for spaces in ("", "      "):
                with self.subTest(name, spaces=spaces):
                    rng = random.Random(11)
                    rows = "".join(f"{i},{spaces}{2.4 * math.exp(0.1 * rng.gauss(0, 1)):.5f},{spaces}{zero}\n" for i in range(40))
                    found = {(level, rule) for level, rule, _ in above_notes(audit("step,loss,lr\n" + rows, "log.csv"))}
                    self.assertIn(("error", "health/learning-rate"), found)

    def test_a_rounded_zero_or_a_loss_that_falls_is_none(self):
        falls = lambda i: 0.6 + 2 * math.exp(-i / 10)
        for zero, loss in (("0.0000", lambda i: 2.4), ("0.0", lambda i: 2.4), ("0.000e+00", falls), ("0", falls)):
            with self.subTest(zero):
                found = {(level, rule) for level, rule, _ in above_notes(audit(self.text(zero, loss)))}
                self.assertNotIn(("error", "health/learning-rate"), found)


def keras_2(done, total, loss):
    bar = "=" * 30 if done == total else "=" * (30 * done // total) + ">" + "." * 10
    return f"{done:>4}/{total} [{bar}] - {'61s' if done == total else 'ETA: 4:01'} - loss: {loss:.4f} - accuracy: 0.5000"


def keras_3(done, total, loss):
    return f"\x1b[1m{done:>4}/{total}\x1b[0m \x1b[37m{'━' * 20}\x1b[0m \x1b[1m{'61s' if done == total else '4:01'}\x1b[0m 160ms/step - accuracy: 0.5000 - loss: {loss:.4f}"


def keras_open(done, total, loss):
    return f"{done:>7}/Unknown - 12s 39ms/step - loss: {loss:.4f} - accuracy: 0.5000"


class BarsOfAnUnfinishedEpoch(unittest.TestCase):
    def bars(self, bar, loss, epochs, end):
        text = ""
        for epoch in range(epochs):
            text += f"Epoch {epoch + 1}/50\n" + end.join(bar(done, 1000, 2.3 / (epoch + 1)) for done in range(50, 1001, 50)) + "\n"
        return text + f"Epoch {epochs + 1}/50\n" + end.join(bar(done, 1000, loss(done)) for done in range(50, 801, 50)) + "\n"

    def test_a_nan_in_the_epoch_that_did_not_end(self):
        for bar, end, epochs in itertools.product((keras_2, keras_3, keras_open), ("\n", "\r"), (0, 4)):
            if bar is keras_open and epochs > 0:
                continue
            with self.subTest(bar.__name__, epochs=epochs):
                report = audit(self.bars(bar, lambda done: math.nan if done >= 400 else 1.5, epochs, end))
                steps = [f["site"]["step_first"] for f in report["findings"] if f["rule"] == "health/loss-non-finite"]
                self.assertEqual(steps, [5 if epochs else 400])

    def test_a_healthy_epoch_that_did_not_end(self):
        for bar, end, epochs in itertools.product((keras_2, keras_3, keras_open), ("\n", "\r"), (0, 4)):
            with self.subTest(bar.__name__, epochs=epochs):
                self.assertEqual(above_notes(audit(self.bars(bar, lambda done: 2 - done / 1000, epochs, end))), set())


def hugging_face(loss):
    return (f"***** train metrics *****\n  epoch                    =        3.0\n  total_flos               =  1234567GF\n  train_loss               =     {loss}\n"
            f"  train_runtime            = 0:12:34.56\n***** eval metrics *****\n  epoch                   =        3.0\n  eval_loss               =     {loss}\n")


def wandb(loss):
    return (f"wandb: Run history:\nwandb:       train/loss █▅▃▂▁\nwandb: \nwandb: Run summary:\nwandb:      train/epoch 3.0\nwandb: train/global_step 300\nwandb:       train/loss {loss}\n"
            f"wandb:        eval/loss {loss}\nwandb: \nwandb: View run at https://wandb.ai/a/b\n")


class BlocksOfMetrics(unittest.TestCase):
    def test_a_nan_in_a_block_alone(self):
        for block, step in ((hugging_face, 3), (wandb, 300)):
            for text in (block("nan"), block("nan").rstrip("\n").rstrip()):
                with self.subTest(block.__name__):
                    report = audit(text)
                    steps = {f["site"]["step_first"] for f in report["findings"] if f["rule"] == "health/loss-non-finite"}
                    self.assertEqual(steps, {step})

    def test_a_healthy_block(self):
        for block in (hugging_face, wandb):
            self.assertEqual(above_notes(audit(block("1.234"))), set())

    def test_the_summary_of_a_log_with_rows_is_counted(self):
        rows = "".join(f"step {i + 1} loss {v:.4f}\n" for i, v in enumerate(losses(30)))
        report = audit(rows + wandb("0.7"))
        self.assertEqual(set(series(report)), {"loss"})
        self.assertIn("2 values of its summary", notes(report))

    def test_a_block_of_tune_ends_with_the_log_or_at_a_row(self):
        block = "Result for PPO_CartPole_00000:\n  info:\n    total_loss: {}\n  training_iteration: {}"
        for end in ("", "\n", "\n\n"):
            report = audit("\n".join(block.format(2.5 - i / 100, i + 1) for i in range(20)) + end)
            self.assertEqual(series(report).get("info/total_loss"), 20, series(report))


class Literals(unittest.TestCase):
    def test_a_literal_after_its_rows_is_counted(self):
        values = [round(v, 4) for v in losses(30)]
        rows = "".join(f"{{'loss': {v}, 'step': {i + 1}}}\n" for i, v in enumerate(values))
        for literal in (str([{"loss": v, "step": i + 1} for i, v in enumerate(values)]), str({"loss": values})):
            report = audit(rows + literal + "\n")
            self.assertEqual(series(report)["loss"], 30)
            self.assertIn("30 more in a printed list", notes(report))

    def test_a_history_that_grows_counts_once(self):
        values = [round(v, 4) for v in losses(30)]
        report = audit("".join(f"{{'loss': {values[:i]}, 'val_loss': {values[:i]}}}\n" for i in range(2, 31)), "out.txt")
        self.assertEqual(series(report)["loss"], 30)

    def test_lists_of_ranks_are_no_history(self):
        report = audit("".join(f"step {i + 1} loss {v:.4f} {{'losses': [{v}, {v}, {v}]}}\n" for i, v in enumerate(losses(30))))
        self.assertEqual(series(report), {"loss": 30})
        self.assertIn("30 lists of numbers", notes(report))


class Names(unittest.TestCase):
    def test_words_of_a_logger_are_no_part_of_a_name(self):
        for line in ("12:00:04 INFO loss={:.4f} step={}", "INFO:root:'loss': {:.4f}, step = {}", "DEBUG loss={:.4f} step={}"):
            report = audit("".join(line.format(v, i + 1) + "\n" for i, v in enumerate(losses(20))))
            self.assertEqual(series(report), {"loss": 20}, line)


if __name__ == "__main__":
    sys.exit(unittest.main())
