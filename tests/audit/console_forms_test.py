"""plumb audit on the forms of consoles: all rows are read, and one NaN is found in the loss at its step. With
PLUMB_LONG=1 also a spike, and nothing above a note in a healthy run."""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import console_forms
import console_forms_copied
import console_forms_hand
import console_forms_tools
from console_forms import FAULT_AT, ROWS

PLUMB = pathlib.Path(os.environ["PLUMBLINE_BIN_DIR"]) / "plumb"
LONG = os.environ.get("PLUMB_LONG") == "1"
# Texts whose other lines are rows, and lines that are none although they resemble some. Of each, the series and their
# numbers of points.
STEPS = "".join(f"step {i} loss {2.5 - 0.01 * i:.4f}\n" for i in range(1, 41))
ROWS_ALONE = {
    "settings": ("num_steps=1000 lr=0.1 batch_size=8\n" + STEPS, {"loss": 40}),
    "loss without a step among steps": (STEPS + "loss: 2.5, acc: 0.5\n" * 30, {"loss": 40}),
    "loss without a step, too few": ("Testing the model.\nloss: 0.25, acc: 0.9\nDone in good time.\n", {}),
    "loss without a step, most lines are others": ("".join(f"reading shard {i} of the set\n" * 2 + "loss: 2.5\n" for i in range(20)), {}),
    "numbered losses": ("".join(f"step {i} loss1 0.5 loss2 {2.5 - 0.01 * i:.4f}\n" for i in range(1, 41)), {"loss1": 40, "loss2": 40}),
    "sentence about a column": (STEPS + "  the loss per global_step follows\n" + STEPS.replace("step ", "step 1"), {"loss": 80}),
    "one set on a line": ("".join(f"Epoch {i}: train loss 2.5, val acc 0.5\n" for i in range(40)), {"train loss": 40, "val acc": 40}),
    "epochs between blocks": ("".join(
        f"\n > EPOCH: {i}/100\n\n   --> STEP: 4/4 -- GLOBAL_STEP: {4 * i + 4}\n     | > loss: 0.5  (0.5)\n\n > EVALUATION \n\n   --> STEP: 0\n"
        "     | > loss: 0.6  (0.6)\n\n  --> EVAL PERFORMANCE\n     | > avg_loss: 0.6 (+0.0)\n" for i in range(40)),
        {"loss": 40, "val/loss": 40, "val/avg_loss": 40}),
}


def audit(folder, form, fault):
    path = pathlib.Path(folder) / form.file
    path.write_text(form.text(console_forms.Run(fault=fault)), newline="")
    ended = subprocess.run([PLUMB, "audit", "--quiet", "--format", "json", path], capture_output=True, text=True, timeout=60)
    return ended.returncode, json.loads(ended.stdout)


def steps_of(report, rule, series):
    return [f["site"]["step_first"] for f in report["findings"] if f["rule"] == rule and series in f["site"].get("op", "")]


def wrong(form, fault):
    """The errors in the report of this run; empty if there are none."""
    with tempfile.TemporaryDirectory() as folder:
        status, report = audit(folder, form, fault)
    series = {s["name"]: s["points"] for i in report["inputs"] for s in i.get("series", [])}
    loss = max((name for name in series if form.loss in name), key=lambda name: (series[name], name == form.loss), default="")
    read = series.get(loss, 0)  # several ranks are one series here
    if read == 0 or read % ROWS != 0:
        return f"{read} points of {ROWS}: {series}"
    above = [(f["level"], f["rule"], f["site"].get("op"), f["site"].get("step_first"))
             for f in report["findings"] if f["level"] in ("warning", "error")]
    if fault is None:
        return "" if status == 0 and not above else f"status {status}, {above}"
    found = steps_of(report, "health/loss-non-finite" if fault == "nan" else "health/loss-spike", form.loss)
    expected = form.step(FAULT_AT)
    return "" if found and math.isclose(found[0], expected) else f"found in {found}, expected {expected}; {above}"


class ConsoleForms(unittest.TestCase):
    def check(self, forms, fault):
        for name, form in forms.items():
            if fault == "spike" and not form.judged:
                continue
            with self.subTest(name, fault=fault):
                self.assertEqual(wrong(form, fault), "")

    def test_a_nan_is_found_at_its_step(self):
        """Also checks that all rows are read."""
        self.check(console_forms_tools.FORMS, "nan")
        self.check(console_forms_hand.FORMS, "nan")
        self.check(console_forms_copied.FORMS, "nan")

    def test_lines_that_resemble_rows_are_none(self):
        for name, (text, expected) in ROWS_ALONE.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "train.log"
                path.write_text(text)
                ended = subprocess.run([PLUMB, "audit", "--quiet", "--format", "json", path], capture_output=True, text=True, timeout=60)
                inputs = json.loads(ended.stdout)["inputs"] if ended.stdout else []
                self.assertEqual({s["name"]: s["points"] for i in inputs for s in i.get("series", [])}, expected)

    @unittest.skipUnless(LONG, "PLUMB_LONG=1")
    def test_a_healthy_run_has_no_finding(self):
        self.check(console_forms_tools.FORMS, None)
        self.check(console_forms_hand.FORMS, None)
        self.check(console_forms_copied.FORMS, None)

    @unittest.skipUnless(LONG, "PLUMB_LONG=1")
    def test_a_spike_is_found_at_its_step(self):
        self.check(console_forms_tools.FORMS, "spike")
        self.check(console_forms_hand.FORMS, "spike")
        self.check(console_forms_copied.FORMS, "spike")


if __name__ == "__main__":
    sys.exit(unittest.main())
