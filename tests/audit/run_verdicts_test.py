"""plumb audit on whole runs: one fault in several series is one finding; a rank that becomes silent; NaN in a series
without a role; a loss that never changes; schedules that start again; memory without a known limit; a NaN that remains
after a resume."""

import json
import math
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

PLUMB = pathlib.Path(os.environ["PLUMBLINE_BIN_DIR"]) / "plumb"


class Verdicts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.random = random.Random(5)

    def noisy(self, value, noise=0.02):
        return value * math.exp(noise * self.random.gauss(0, 1))

    def audit(self, files, *options):
        """Returns the findings as (level, rule, op, cause); self.whole has their full form."""
        paths = []
        for name, text in files.items():
            paths.append(self.folder / name)
            paths[-1].write_text(text)
        target = paths if len(paths) == 1 else [self.folder]
        ended = subprocess.run([PLUMB, "audit", "--quiet", "--format", "json", *options, *target], capture_output=True, text=True,
                               timeout=120)
        for path in paths:
            path.unlink()
        self.status = ended.returncode
        self.whole = json.loads(ended.stdout)["findings"]
        return [(f["level"], f["rule"], f["site"]["op"], f["cause"]["id"]) for f in self.whole]

    def log(self, rows, row):
        return {"train.log": "".join(row(i) for i in range(rows))}

    # ---- one fault, one finding ----

    def parts(self, i, factor, names=("loss_cls", "loss_bbox", "loss_rpn_cls", "loss_rpn_bbox")):
        fall = 0.4 + 0.6 * math.exp(-i / 40)
        values = [self.noisy(x) * fall * factor for x in (2.3, 1.1, 0.6, 0.4)]
        return "".join([f"iter {i + 1} loss: {sum(values):.4f}"] + [f" {n}: {v:.4f}" for n, v in zip(names, values)]) + " lr: 1e-4\n"

    def test_parts_that_diverge_with_their_sum(self):
        for names in (("loss_cls", "loss_bbox", "loss_rpn_cls", "loss_rpn_bbox"), ("box_loss", "cls_loss", "dfl_loss", "obj_loss")):
            found = self.audit(self.log(200, lambda i, n=names: self.parts(i, 1 if i < 120 else 1 + 0.05 * (i - 120), n)))
            self.assertEqual(found, [("error", "health/loss-divergence", "loss", "divergence")])
            self.assertEqual(self.whole[0]["details"]["also"], sorted(names))
            self.assertIn("The same is visible in ", self.whole[0]["explanation"])
            self.assertEqual(self.audit(self.log(200, lambda i, n=names: self.parts(i, 1, n))), [])

    def test_parts_that_are_nan_with_their_sum(self):
        def row(i):
            value = "nan" if i >= 140 else f"{self.noisy(2 * math.exp(-i / 80)):.4f}"
            return f"step {i} loss {value} ce_loss {value} mtp_loss {value}\n"
        self.assertEqual(self.audit(self.log(200, row)), [("error", "health/loss-non-finite", "loss", "nan")])
        self.assertEqual(self.whole[0]["details"]["also"], ["ce_loss", "mtp_loss"])

    def test_faults_of_two_series_at_two_times_stay_two(self):
        def row(i):
            first = 1 if i < 60 else 1 + 0.06 * (i - 60)
            second = 1 if i < 140 else 1 + 0.1 * (i - 140)
            return f"step {i} lm_loss {self.noisy(2 * first):.4f} total_loss {self.noisy(1.5 * second):.4f}\n"
        errors = [f for f in self.audit(self.log(200, row)) if f[0] == "error"]
        self.assertEqual(errors, [("error", "health/loss-divergence", "lm_loss", "divergence"),
                                  ("error", "health/loss-divergence", "total_loss", "divergence")])

    def test_an_evaluation_and_its_perplexity_overfit_once(self):
        rows = ["step,train_loss,val_loss,val_ppl,val_b_loss\n"]
        for i in range(4, 200, 5):
            value = self.noisy(1.2 * math.exp(-i / 40) + 0.3 + 0.01 * i, 0.005)
            rows.append(f"{i},{2 * math.exp(-i / 60):.4f},{value:.4f},{math.exp(value):.4f},{1.1 * value:.4f}\n")
        self.assertEqual(self.audit({"log.csv": "".join(rows)}), [("warning", "health/overfit", "val_loss", "overfit")])
        self.assertEqual(self.whole[0]["details"]["also"], ["val_b_loss"])

    # ---- ranks ----

    def rank_logs(self, last, every=1):
        """`last`: rank -> its last step."""
        return {f"rank{rank}.log": "".join(
            f"step {i} loss {self.noisy(2 * math.exp(-i / 100) + 0.3):.4f} lr 1e-4\n" for i in range(0, end + 1, 1 if rank == 0 else every))
            for rank, end in last.items()}

    def test_a_rank_that_falls_silent(self):
        self.assertEqual(self.audit(self.rank_logs({0: 199, 1: 199, 2: 149, 3: 199})),
                         [("warning", "health/run-died", "process", "rank-silent")])
        self.assertEqual(self.whole[0]["site"]["ranks"], [2])
        # It may also be rank 0.
        self.assertEqual([f[3] for f in self.audit(self.rank_logs({0: 60, 1: 199}))], ["rank-silent"])

    def test_ranks_that_are_not_silent(self):
        for last, every in (({0: 199, 1: 199}, 1), ({0: 199, 1: 193, 2: 195}, 1), ({0: 199, 1: 190, 2: 190}, 10), ({0: 199, 1: 4, 2: 4}, 1)):
            self.assertEqual(self.audit(self.rank_logs(last, every)), [], (last, every))

    # ---- series of no role ----

    def test_nan_in_a_series_of_no_role_is_a_note(self):
        for role in ("lr", "loss"):
            for bad in (True, False):
                rows = [json.dumps({"step": i, "quux": self.noisy(1) if not bad or i < 85 else math.nan, role: self.noisy(1e-4)})
                        for i in range(200)]
                found = self.audit({"log.jsonl": "\n".join(rows) + "\n"})
                self.assertEqual([f for f in found if f[2] == "quux"],
                                 [("note", "health/loss-non-finite", "quux", "unknown-series")] if bad else [])
                self.assertEqual(self.status, 0)

    def test_a_metric_that_is_nan_up_to_the_end(self):
        def found(value, name="reward"):
            return self.audit({"log.jsonl": "".join(
                json.dumps({"step": i, name: value(i), "loss": self.noisy(2 * math.exp(-i / 50))}) + "\n" for i in range(100))})

        for name in ("reward", "entropy", "train/kl"):  # metrics of the policy
            self.assertIn(("error", "health/loss-non-finite", name, "nan"), found(lambda i: math.nan if i > 60 else self.noisy(1), name))
            self.assertIn("a metric of the policy is NaN", self.whole[0]["title"])
        for name in ("accuracy", "clipfrac"):  # no rule judges these
            self.assertIn(("warning", "health/loss-non-finite", name, "metric"), found(lambda i: math.nan if i > 60 else 0.5, name))
        # No episode had ended; single rows; the last rows are not due; there never was one.
        for value in (lambda i: math.nan if i < 60 else 1.5, lambda i: math.nan if i % 3 else 1.5, lambda i: math.nan if i > 97 else 1.5, lambda i: math.nan):
            for name in ("accuracy", "clipfrac"):
                self.assertEqual([f for f in found(value, name) if f[3] == "metric"], [])
            self.assertEqual([f for f in found(value, "ep_rew_mean") if f[3] in ("metric", "nan")], [], "iterations without an episode")

    def test_without_any_role_nothing_is_judged(self):
        rows = [json.dumps({"step": i, "quux": math.nan if i > 50 else 1.0}) for i in range(100)]
        self.audit({"log.jsonl": "\n".join(rows) + "\n"})
        self.assertEqual(self.status, 2)

    def test_a_column_without_a_number_is_no_news(self):
        rows = [json.dumps({"step": i, "loss": self.noisy(2 * math.exp(-i / 50)), "grad_cosine": math.nan}) for i in range(100)]
        self.assertEqual(self.audit({"log.jsonl": "\n".join(rows) + "\n"}), [])

    # ---- a loss that never changes ----

    def test_a_loss_whose_digits_never_change(self):
        for rows in (10, 20, 50, 60):
            for value, cause in (("0.6931", "uniform-guess"), ("2.3026", "uniform-guess"), ("1.8723", "flat-from-the-beginning")):
                found = self.audit(self.log(rows, lambda i, v=value: f"Epoch {i + 1}/{rows} loss: {v} acc: 0.5000 val_loss: {v}\n"))
                self.assertEqual(found, [("warning", "health/not-learning", "loss", cause)], (rows, value))

    def test_constant_losses_that_report_nothing(self):
        """Few points, few digits, a loss that changes in its last digit, a rate of 0 (which another rule judges)."""
        cases = ((9, lambda i: f"step {i} loss 0.6931\n"), (50, lambda i: f"step {i} loss 0.69\n"),
                 (50, lambda i: f"step {i} loss 1.0000\n"), (50, lambda i: f"step {i} loss {0.6931 - 0.0001 * (i // 20):.4f}\n"))
        for rows, row in cases:
            self.assertEqual(self.audit(self.log(rows, row)), [], row(1))
        found = self.audit(self.log(50, lambda i: f"step {i} loss 0.6931 lr 0.0\n"))
        self.assertNotIn("health/not-learning", [f[1] for f in found])

    # ---- rates ----

    def rates(self, rate, rows=300, stated=None):
        def row(i):
            line = "Resuming training from checkpoint\n" if i == stated else ""
            return line + f"step {i} loss {self.noisy(2 * math.exp(-i / 100) + 0.5, 0.01):.4f} lr {rate(i):.4e}\n"
        return [f for f in self.audit(self.log(rows, row)) if f[1] == "health/learning-rate"]

    def test_a_schedule_that_begins_anew_with_its_warm_up(self):
        def shape(t):
            return 3e-4 * min(1, (t + 1) / 15) * max(0.02, 1 - t / 350)
        expected = [("warning", "health/learning-rate", "lr", "schedule-not-restored")]
        self.assertEqual(self.rates(lambda i: shape(i if i < 150 else i - 150), stated=150), expected)
        self.assertEqual(self.rates(shape, stated=150), [])
        # A resume within the warm-up, and one without a line.
        self.assertEqual(self.rates(lambda i: shape(i if i < 8 else i - 8), stated=8), [])

    def test_a_rate_that_leaps(self):
        expected = [("warning", "health/learning-rate", "lr", "rate-leap")]
        self.assertEqual(self.rates(lambda i: 1e-4 if i < 150 else 1.0), expected)
        for healthy in (lambda i: 1e-4 if i < 150 else 5e-3, lambda i: 1e-3 if i < 150 else 1e-5, lambda i: 1e-8 * 1.05 ** i,
                        lambda i: 1e-8 if i < 3 else 1e-4):
            self.assertEqual(self.rates(healthy), [])

    def test_rates_that_are_never_right(self):
        self.assertEqual([f[0] for f in self.rates(lambda i: 3e-4 * (1 - i / 150))], ["error"])
        self.assertEqual([f[0] for f in self.rates(lambda i: 1e-4 if i < 100 else math.nan)], ["warning"])

    # ---- memory, resumes, games ----

    def test_memory_that_grows_without_a_known_limit(self):
        for name in ("memory(GiB)", "memory/device_reserved(gib)", "gpu_mem_gb"):
            for grows in (True, False):
                def row(i, grows=grows, name=name):
                    return json.dumps({"step": i, "loss": self.noisy(2 * math.exp(-i / 50)), name: 21.5 + (57 * i / 240 if grows else 0)}) + "\n"
                found = self.audit({"log.jsonl": "".join(row(i) for i in range(240))})
                self.assertEqual([f[:2] for f in found], [("note", "performance/memory-creep")] if grows else [], name)

    def test_a_nan_that_a_resume_left_after(self):
        def line(i, bad):
            return f"step {i} loss {'nan' if bad else f'{self.noisy(2 * math.exp(-i / 300), 0.005):.4f}'} lr 1e-4\n"
        first = "".join(line(i, i > 300) for i in range(1, 320))
        self.audit({"train.log": first + "".join(line(i, False) for i in range(251, 600))})
        text = self.whole[0]["explanation"]
        self.assertIn("Up to step 319, 19 values", text)
        self.assertIn("A resume in step 251 went back, and all 349 values since then are finite", text)
        self.audit({"train.log": first + "".join(line(i, i > 420) for i in range(251, 600))})
        self.assertNotIn("went back", self.whole[0]["explanation"])

    def test_a_resume_that_falls_back_by_a_few_rows(self):
        """The finding names it, from two rows on; a healthy resume has no finding."""
        for rows_back in (2, 5, 8):
            for jump in (0, 0.6):
                steps = list(range(1, 121)) + list(range(121 - rows_back, 201))
                losses = [0.6 + 2.2 * math.exp(-step / 60) + (jump if at >= 120 and step < 141 else 0) for at, step in enumerate(steps)]
                found = self.audit({"train.log": "".join(f"step {step} loss {self.noisy(loss, 0.02):.5f}\n" for step, loss in zip(steps, losses))})
                self.assertEqual([f[1] for f in found], ["health/loss-spike"] if jump else [])
                if jump:
                    self.assertIn(f"the steps go back from 120 to {121 - rows_back} there", self.whole[0]["explanation"])

    def test_returns_next_to_a_loss_that_rises(self):
        """A score beyond [0, 1], or with an epsilon, is what an episode brought."""
        for column in ("return", "returns", "avg_return", "score,epsilon", "episode_reward", "mean_return", "epsilon", "score", "avg_score",
                       "episode_score"):
            rows = ["step,loss," + column + "\n"]
            for i in range(200):
                epsilon = f"{1 - 0.95 * i / 200:.4f}"
                other = {"epsilon": epsilon, "score,epsilon": f"{i},{epsilon}"}.get(column, i)
                rows.append(f"{i},{self.noisy(0.01 + 1.6 * i / 200, 0.1):.5f},{other}\n")
            found = self.audit({"log.csv": "".join(rows)})
            self.assertEqual([f for f in found if f[0] != "note"], [], column)

    def test_a_score_within_0_and_1_is_of_answers(self):
        """A classifier that diverges."""
        rows = [f"{i},{self.noisy(0.01 + 1.6 * i / 200, 0.1):.5f},{1 - 0.95 * i / 200:.4f}\n" for i in range(200)]
        self.assertIn("error", [f[0] for f in self.audit({"log.csv": "step,loss,score\n" + "".join(rows)})])

    def test_what_costs_is_no_loss(self):
        for name in ("cost_usd", "gpu_cost_usd", "total_cost", "energy_cost", "flops_cost", "dataloader_cost", "cost_per_step", "heat_loss",
                     "loss_kg", "loss_of_pressure", "dropout_loss_keep", "packet_loss"):
            rows = [f"step,train_loss,{name}\n"] + [f"{i},{self.noisy(2 * math.exp(-i / 60)):.4f},{1 + i / 20}\n" for i in range(200)]
            self.assertEqual(self.audit({"log.csv": "".join(rows)}), [], name)

    # ---- exit status and first screen ----

    def text(self, files, *options):
        for name, text in files.items():
            (self.folder / name).write_text(text)
        ended = subprocess.run([PLUMB, "audit", "--quiet", *options, self.folder], capture_output=True, text=True, timeout=120)
        for name in files:
            (self.folder / name).unlink()
        return ended.returncode, ended.stdout

    def test_where_nothing_could_be_judged(self):
        for files, reason in (({}, "nothing was judged: the folder contains no file"),
                              ({"a.txt": "hello world\n"}, "nothing was judged: 1 file with an unknown format"),
                              ({"a.csv": "step,foo\n1,2\n2,3\n"}, "nothing was judged: these series have unknown names: foo")):
            status, text = self.text(files)
            self.assertEqual((status, text.strip().splitlines()[-1][:len(reason)]), (2, reason))
            self.assertNotIn("proved", text)

    def test_the_last_line_sums_up_and_passes_are_listed_on_request(self):
        healthy = self.log(200, lambda i: self.parts(i, 1))
        status, text = self.text(healthy)
        self.assertEqual(status, 0)
        self.assertNotIn("Passed", text)
        self.assertRegex(text.strip().splitlines()[-1], r"^0 findings; [1-9]\d* of [1-9]\d* rules judged; not judged: health/")
        self.assertIn("Passed", self.text(healthy, "-v")[1])
        status, text = self.text(self.log(200, lambda i: self.parts(i, 1 if i < 120 else 1 + 0.05 * (i - 120))))
        self.assertEqual(status, 1)
        self.assertRegex(text.strip().splitlines()[-1], r"^1 finding \(1 error\); ")
        self.assertGreater(text.index("health/loss-divergence  loss"), text.index("Inconclusive"))

    def test_logs_that_no_reader_takes_are_named(self):
        files = self.log(200, lambda i: self.parts(i, 1))
        files["other.log"] = "Hello\nno numbers here\n"
        self.assertIn("other.log", self.text(files)[1])

    def test_one_nan_is_one_incident(self):
        def row(i, bad):
            value = "nan" if bad and i >= 90 else f"{self.noisy(2 * math.exp(-i / 80)):.4f}"
            return f"step {i} loss {value} grad_norm {'nan' if bad and i >= 90 else f'{self.noisy(1.2):.3f}'}\n"
        found = self.audit(self.log(150, lambda i: row(i, True)))
        self.assertEqual({f[1] for f in found}, {"health/loss-non-finite"})
        self.assertEqual({f[3] for f in found}, {"nan"})
        self.assertIn("in 1 incident", self.text(self.log(150, lambda i: row(i, True)))[1])
        self.assertEqual(self.audit(self.log(150, lambda i: row(i, False))), [])


if __name__ == "__main__":
    unittest.main()
