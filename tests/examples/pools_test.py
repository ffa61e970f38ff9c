"""Experts that serve several ranks: their pool is judged as a whole, live by plumbd and from dumps."""

import contextlib
import json
import pathlib
import subprocess
import unittest

import support

FUTURE, BATCH = "causality/moe-future-leak", "causality/moe-batch-dependence"
WORLD, STEPS, WAITS = 4, 3, 2  # WAITS: see pool_rank.py
RANK = pathlib.Path(__file__).with_name("pool_rank.py")
LAYERS = {"leaking", "clean", "grouped", "lacking"}


def start_rank(run, rank, server, folder):
    return subprocess.Popen(
        [support.warm.python(), str(RANK), "--run", run, "--rank", str(rank), "--world", str(WORLD),
         "--steps", str(STEPS), "--server", server.address, "--dumps", str(folder / "dumps"),
         "--record", str(folder / "records")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_ranks(run, ranks, server, folder):
    for name in ("dumps", "records"):
        (folder / name).mkdir(parents=True)
    with contextlib.ExitStack() as started:
        processes = []
        for rank in ranks:
            process = start_rank(run, rank, server, folder)
            started.callback(process.kill)
            processes.append(process)
        for _ in range(WAITS):
            for process in processes:
                if process.stdout.readline() != "here\n":
                    raise AssertionError("a rank ended before it had sent its first steps")
            for process in processes:
                process.stdin.write("go on\n")
                process.stdin.flush()
        for process in processes:
            support.finish(process)


def query(server, what, run):
    stated = support.plumb("query", what, "--run", run, "--server", server.address, "--format", "json",
                         statuses=(0, 1))
    return [json.loads(line) for line in stated.splitlines()]


def of_pools(list_of):
    """Returns the verdict or finding of the causality rules on the routers, by rule and layer; one each."""
    named = [one for one in list_of
             if one["rule"] in (FUTURE, BATCH) and one["site"]["layer"] in LAYERS]
    # Dumps are no run whose end is known: their passes state no looks. No line of code wrote their sites.
    left_out = ("looks", "run_steps", "file", "line")
    of = {
        (one["rule"], one["site"]["layer"]): {
            k: {n: x for n, x in v.items() if n not in left_out} if k == "site" else v for k, v in one.items() if k not in left_out
        }
        for one in named
    }
    if len(of) != len(named):
        raise AssertionError(f"expected one of each rule and layer; found {named}")
    return of


class Pools(unittest.TestCase):
    """One server; a world of four ranks, and one without rank 2."""

    RUNS = {"whole": (0, 1, 2, 3), "torn": (0, 1, 3)}

    @classmethod
    def setUpClass(cls):
        cls.verdicts, cls.findings, cls.audits = {}, {}, {}
        with support.scratch() as folder, support.Server(folder, "--grace", "5") as server:
            for run, ranks in cls.RUNS.items():
                run_ranks(run, ranks, server, folder / run)
                cls.audits[run] = {form: support.audit(folder / run / form)
                                   for form in ("dumps", "records")}
            for run in cls.RUNS:
                # A rank that never came is awaited as long as one whose stream broke.
                support.wait_until_over(server, run)
                cls.verdicts[run] = of_pools(query(server, "verdicts", run))
                cls.findings[run] = of_pools(
                    support.findings_in(server, query(server, "incidents", run)))

    def test_a_leak_across_ranks_is_proved_live(self):
        for layer in ("leaking", "grouped"):
            with self.subTest(layer):
                finding = self.findings["whole"][FUTURE, layer]
                self.assertEqual((finding["strength"], finding["level"]), ("proved", "error"))
                self.assertEqual(finding["cause"]["id"], "drop-by-score")
                self.assertEqual(finding["site"]["ranks"], [0, 1, 2, 3])

    def test_first_come_first_served_across_ranks_passes_live(self):
        verdict = self.verdicts["whole"][FUTURE, "clean"]
        self.assertEqual(verdict["verdict"], "pass", verdict)
        self.assertEqual(verdict["details"]["policy"], "fifo-capacity")
        self.assertEqual(verdict["details"]["tokens"], 512)
        self.assertNotIn((FUTURE, "clean"), self.findings["whole"])
        self.assertEqual(self.findings["whole"][BATCH, "clean"]["strength"], "proved")

    def test_a_rank_that_recorded_nothing_is_named(self):
        verdict = self.verdicts["whole"][FUTURE, "lacking"]
        self.assertEqual(verdict["verdict"], "inconclusive")
        self.assertIn("missing-ranks", verdict["reason"])
        self.assertIn("rank 1 recorded no rows", verdict["reason"])

    def test_a_rank_that_never_came_is_named(self):
        self.assertEqual(self.findings["torn"], {})
        for layer in LAYERS:
            with self.subTest(layer):
                verdict = self.verdicts["torn"][FUTURE, layer]
                self.assertEqual(verdict["verdict"], "inconclusive")
                missing = "ranks 1, 2" if layer == "lacking" else "rank 2"
                self.assertIn(f"{missing} recorded no rows", verdict["reason"])

    def test_dumps_and_records_of_each_rank_are_read_whole(self):
        for run, ranks in self.RUNS.items():
            for form, (status, report) in self.audits[run].items():
                with self.subTest(run=run, form=form):
                    self.assertEqual(status, 1 if run == "whole" else 0)
                    self.assertEqual([i for i in report["inputs"] if i["problems"]], [])
                    self.assertEqual(report["coverage"]["dropped"], 0)
                    files = {"dumps": STEPS * 2 * len(LAYERS) * len(ranks), "records": len(ranks)}
                    self.assertEqual(len(report["inputs"]), files[form])

    def test_the_audit_states_what_was_stated_live(self):
        for run in self.RUNS:
            for form, (_, report) in self.audits[run].items():
                with self.subTest(run=run, form=form):
                    self.assertEqual(of_pools(report["findings"]), self.findings[run])
                    self.assertEqual(of_pools(report["verdicts"]), self.verdicts[run])


if __name__ == "__main__":
    support.main()
