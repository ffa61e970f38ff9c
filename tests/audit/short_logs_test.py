"""plumb audit on the console logs of short fine-tunings: the faulty ones end with exit status 1, the healthy ones with no
finding above a note."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import short_logs

PLUMB = pathlib.Path(os.environ["PLUMBLINE_BIN_DIR"]) / "plumb"
SEEDS = range(1, 31 if os.environ.get("PLUMB_LONG") == "1" else 3)


class ShortLogs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def audit(self, text, *options, name="train.log"):
        """Exit status, and what was found as (level, rule, op, title)."""
        path = self.folder / name
        path.write_text(text)
        ended = subprocess.run([PLUMB, "audit", "--format", "json", *options, path], capture_output=True, text=True,
                               timeout=120)
        report = json.loads(ended.stdout)
        self.steps = [f["site"]["step_last"] for f in report["findings"]] or getattr(self, "steps", [])
        return ended.returncode, [(f["level"], f["rule"], f["site"].get("op"), f["title"]) for f in report["findings"]]

    def test_every_faulty_one_is_reported(self):
        for seed in SEEDS:
            for name, text in short_logs.faulty(seed).items():
                with self.subTest(name, seed=seed):
                    status, found = self.audit(text, "--fail-on", "warning")
                    self.assertEqual(status, 1, found)

    def test_ruined_ones_are_errors(self):
        """At the default of --fail-on."""
        errors = ("rate far too high", "ruined and back", "breaks at once", "diverges late", "norm NaN from the first row",
                  "norm NaN later", "loss NaN", "loss 0.0, no norm", "rate 0", "evaluation NaN",
                  "spikes without recovery")
        for name, text in short_logs.faulty(1).items():
            with self.subTest(name):
                status, found = self.audit(text)
                self.assertEqual(status, 1 if name in errors else 0, found)

    def test_no_healthy_one_is_reported_above_a_note(self):
        for seed in SEEDS:
            for name, text in short_logs.healthy(seed).items():
                with self.subTest(name, seed=seed):
                    status, found = self.audit(text, "--fail-on", "warning")
                    self.assertEqual(status, 0, found)

    def test_a_rate_of_zero(self):
        """All digits in the neighbours: an error. Few digits while the loss falls: a note."""
        zero = short_logs.Run(3).set("learning_rate", 0.0)
        status, found = self.audit(zero.text())
        self.assertEqual((status, [f[0] for f in found if f[1] == "health/learning-rate"]), (0, ["note"]))
        flat = short_logs.flat(3, 1.4, 0.01)
        lines = [f"step {10 * i} loss {row['loss']:.3f} lr 0.000" for i, row in enumerate(flat.rows)]
        status, found = self.audit("\n".join(lines) + "\n")
        self.assertEqual([f[0] for f in found if f[1] == "health/learning-rate"], ["warning"])

    def test_how_a_log_ends(self):
        """A traceback, memory that ran out, a kill: health/run-died with the last step; training after it: nothing."""
        run = short_logs.Run(7).text()
        traceback = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
        for end, title in ((traceback + "ValueError: bad labels\n", "the run ended by an exception"),
                           (traceback + "torch.OutOfMemoryError: CUDA out of memory.\n", "the run ended: GPU memory ran out"),
                           ("Killed\n", "the run was killed")):
            with self.subTest(title):
                status, found = self.audit(run + end)
                self.assertEqual((status, found), (1, [("error", "health/run-died", "process", title)]))
                self.assertEqual(self.audit(end + run), (0, []))
                self.assertEqual(self.steps, [80])

    def test_skipped_steps_are_no_errors(self):
        """One row with an infinite norm: a note; silent where the logged scale halves."""
        for scale in ("", "loss scale", "scale", "grad_scale", "amp_scale"):
            run = short_logs.Run(5)
            rows = []
            for i, row in enumerate(run.rows):
                row = {"step": i, "loss": row["loss"], "gnorm": row["grad_norm"]}
                if i == 40:
                    row["gnorm"] = short_logs.INF
                if scale:
                    row[scale] = 65536 if i < 40 else 32768
                rows.append(json.dumps(row))
            with self.subTest(scale):
                status, found = self.audit("\n".join(rows) + "\n", name="log.jsonl")
                self.assertEqual((status, [f[0] for f in found]), (0, [] if scale else ["note"]))

    def test_a_norm_that_is_lost_is_an_error_by_its_role(self):
        for name in ("gnorm", "norm", "grad_norm/total", "total_norm"):
            for scaled in (False, True):
                rows = []
                for i, row in enumerate(short_logs.Run(6).rows):
                    row = {"step": i, "loss": row["loss"], name: row["grad_norm"] if i < 50 else short_logs.NAN}
                    if scaled:
                        row["loss_scale"] = 1.0
                    rows.append(json.dumps(row))
                with self.subTest(name, scaled=scaled):
                    status, found = self.audit("\n".join(rows) + "\n", name="log.jsonl")
                    self.assertEqual((status, [(f[0], f[2]) for f in found]), (1, [("error", name)]))


if __name__ == "__main__":
    unittest.main()
