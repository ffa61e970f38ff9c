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

    def test_rows_of_skipped_steps_follow_from_the_overflows(self):
        """DeepSpeed logs a loss, a norm and a rate of 0 in a step that is skipped: no advice about labels or the rate."""
        scale, lines = 65536, []
        for i in range(30):
            lines.append(f"[INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
                         f"Attempted loss scale: {scale}, reducing to {max(1, scale // 2)}")
            lines.append(str({"loss": 0.0, "grad_norm": 0.0, "learning_rate": 0.0, "epoch": i / 100}))
            scale = max(1, scale // 2)
        for overflows, headings in ((True, 1), (False, 3)):
            with self.subTest(overflows=overflows):
                text = "\n".join(line for line in lines if overflows or "OVERFLOW" not in line) + "\n"
                self.audit(text)
                ended = subprocess.run([PLUMB, "audit", self.folder / "train.log"], capture_output=True, text=True, timeout=120)
                found = [line for line in ended.stdout.splitlines() if line.startswith(("error  ", "warning  ", "note  "))]
                self.assertEqual(len(found), headings, found)
                self.assertEqual("loss-scale" in found[0], overflows, found)

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

    def lines(self, text_of, rows=120):
        """`text_of`: of a row's number and its values."""
        run = short_logs.Run(11, rows=rows)
        return "".join(text_of(i + 1, row) for i, row in enumerate(run.rows))

    def above_notes(self, found):
        return [(f[0], f[1], f[2]) for f in found if f[0] != "note"]

    def test_ranks_that_clip_by_their_own_norms(self):
        for apart in (True, False):
            def row(i, values, apart=apart):
                return "".join(
                    f"[rank{rank}]: step: {i} loss: {values['loss'] + 0.05 * rank:.4f} "
                    f"grad_norm: {values['grad_norm'] * (1 + (0.5 * rank if apart else 0)):.4f}\n" for rank in range(2))
            status, found = self.audit(self.lines(row))
            self.assertEqual(self.above_notes(found), [("warning", "health/rank-norms", "grad_norm")] if apart else [])

    def test_memory_that_grows_to_the_limit_on_its_line(self):
        for grows in (True, False):
            def row(i, values, grows=grows):
                share = 50 + (48.5 * i / 200 if grows else 0)
                return f"step: {i}  loss: {values['loss']:.4f}  memory: {0.792 * share:.2f}GiB({share:.2f}%)\n"
            status, found = self.audit(self.lines(row, rows=200))
            self.assertEqual(self.above_notes(found), [("warning", "performance/memory-creep", "memory")] if grows else [])

    def test_memory_that_grows_to_the_limit_of_the_exception(self):
        for grows in (True, False):
            def row(i, values, grows=grows):
                return f"step {i} loss {values['loss']:.4f} mem {40 + (38.3 * i / 200 if grows else 0):.2f}GiB\n"
            end = ("Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\ntorch.OutOfMemoryError: CUDA out of "
                   "memory. GPU 0 has a total capacity of 79.15 GiB of which 512.00 MiB is free.\n")
            status, found = self.audit(self.lines(row, rows=200) + end)
            died = ("error", "health/run-died", "process")
            creep = ("warning", "performance/memory-creep", "mem")
            self.assertEqual(sorted(self.above_notes(found)), [died, creep] if grows else [died])

    def test_a_schedule_that_begins_anew_at_a_resume_that_a_line_states(self):
        for line, anew in ((True, True), (True, False), (False, True)):
            def row(i, values, line=line, anew=anew):
                rate = 1e-4 * (1 - i / 80) + 1e-6 if i < 80 else 1e-4 * (1 - (i - 80) / 80) + 1e-6 if anew else 1e-6
                stated = "Resuming training from checkpoint-80\n" if line and i == 80 else ""
                return stated + f"step {i} loss {values['loss']:.4f} lr {rate:.3e}\n"
            status, found = self.audit(self.lines(row))
            expected = [("warning", "health/learning-rate", "lr")] if line and anew else []
            self.assertEqual(self.above_notes(found), expected, (line, anew))

    def test_rows_that_state_no_step(self):
        """Counted: each finding states it. With the totals: the step."""
        totals = "  Num Epochs = 3\n  Total optimization steps = 800\n"
        run = short_logs.Run(5).set("loss", short_logs.NAN, 60)
        for head, step in (("", 61), (totals, 610)):
            path = self.folder / "console.log"
            path.write_text(head + run.text())
            report = json.loads(subprocess.run([PLUMB, "audit", "--format", "json", path], capture_output=True, text=True,
                                               timeout=120).stdout)
            found = [f for f in report["findings"] if f["site"]["op"] == "loss"][0]
            self.assertEqual(found["details"]["step"], step)
            counted = "logged row 61, step unknown" in found["explanation"]
            self.assertEqual((counted, found["details"].get("step_unit")), (True, "logged row") if not head else (False, None))
            notes = " ".join(n if isinstance(n, str) else str(n) for i in report["inputs"] for n in i.get("notes", []))
            self.assertIn("step unknown" if not head else "steps follow from 'epoch'", notes)

    def test_counts_of_nan_and_of_skipped_steps(self):
        """Megatron-LM prints no loss in such a row."""
        for name, bad, expected in (("nan", {50}, "warning"), ("nan", set(range(50, 121)), "error"),
                                    ("skipped", {50}, None), ("skipped", set(range(50, 121)), "error"), ("nan", set(), None)):
            def row(i, values, name=name, bad=bad):
                loss = "" if i in bad else f" lm loss: {values['loss']:.6E} |"
                counts = {"skipped": 0, "nan": 0, name: int(i in bad)}
                return (f" iteration {i:8d}/ 120 |{loss} loss scale: 1.0 | number of skipped iterations: {counts['skipped']} | "
                        f"number of nan iterations: {counts['nan']} |\n")
            status, found = self.audit(self.lines(row))
            self.assertEqual([f[0] for f in self.above_notes(found)], [expected] if expected else [], (name, len(bad)))

    def test_a_perplexity_a_likelihood_and_a_column_that_is_lost(self):
        for name in ("ppl", "val_ppl", "log_likelihood", "nll"):
            for bad in (True, False):
                def row(i, values, name=name, bad=bad):
                    value = "nan" if bad and i > 60 else f"{values['loss']:.4f}"
                    return f"step {i} lr 1e-4 {name} {value}\n"
                status, found = self.audit(self.lines(row))
                self.assertEqual(self.above_notes(found), [("error", "health/loss-non-finite", name)] if bad else [])
        for bad in (True, False):
            def row(i, values, bad=bad):
                return f"{i},{'' if bad and i > 60 else values['loss']},1e-4\n"
            status, found = self.audit("step,loss,lr\n" + self.lines(row), name="log.csv")
            self.assertEqual(self.above_notes(found), [("warning", "health/loss-non-finite", "loss")] if bad else [])

    def test_times_and_counts_are_no_losses(self):
        def icefall(i, values):
            batch = i % 40 * 50
            return (f"Epoch {i // 40 + 1}, batch {batch}, loss[loss={values['loss']:.4f}, over 13120.00 frames. ], "
                    f"tot_loss[loss={values['loss']:.4f}, over {3e6 * (1 - 2.718 ** (-batch / 200)):.2f} frames. ]\n")

        def paddle(i, values):
            return (f"epoch: [1/500], global_step: {i * 10}, lr: 0.0003, loss: {values['loss']:.4f}, avg_reader_cost: 0.13 s, "
                    f"avg_batch_cost: {0.53 if i < 120 else 0.97} s, ips: 300.1 samples/s\n")
        for row in (icefall, paddle):
            status, found = self.audit(self.lines(row, rows=200))
            self.assertEqual(self.above_notes(found), [])

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
