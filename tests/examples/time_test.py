"""Where the time goes, of real ranks by their own spans: each planted fault is named, live or from a record, and nobody
who merely waits is blamed."""

import os
import signal
import subprocess
import sys
import unittest

import support

EXAMPLE = support.REPOSITORY / "examples" / "ddp_pytorch" / "train.py"
SMALL = ["--quiet", "--watch", "weights", "--hidden", "16", "--batch", "2", "--seq", "16"]
LONG = bool(os.environ.get("PLUMB_LONG"))


def start(*options):
    return subprocess.Popen([sys.executable, str(EXAMPLE), "--launch", "2", *SMALL, *map(str, options)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def train(*options):
    return support.finish(start(*options))


def told(findings, notes=True):
    """A busy machine makes the loading of data slow: that is a note, and true."""
    return {(f["rule"], f["cause"]["id"]) for f in findings
            if f["rule"].startswith("performance/") and (notes or f["level"] != "note")}


class TimeTest(unittest.TestCase):
    def test_healthy_ranks_are_silent(self):
        for seed in range(5 if LONG else 1):
            with support.scratch() as folder:
                train("--steps", 18, "--pause", 0.25, "--seed", seed, "--record", folder / "run")
                _, report = support.audit(folder / "run")
                self.assertEqual(told(report["findings"], notes=False), set(), seed)
                passed = {v["rule"] for v in support.verdicts_of(report, "performance/idle-comb")
                          + support.verdicts_of(report, "performance/data-stall")
                          + support.verdicts_of(report, "performance/straggler") if v["verdict"] == "pass"}
                passed |= {rule for rule, _ in told(report["findings"])}  # a note
                self.assertEqual(passed, {"performance/idle-comb", "performance/data-stall", "performance/straggler"})

    def test_a_slow_loader_and_checkpoints_are_told_from_a_record(self):
        with support.scratch() as folder:
            train("--steps", 34, "--pause", 0.04, "--slow-loader", 0.03, "--checkpoint-every", 4,
                  "--checkpoint-seconds", 0.05, "--record", folder / "run")
            _, report = support.audit(folder / "run")
            said = told(report["findings"])
            self.assertIn(("performance/data-stall", "data-loading"), said)
            self.assertIn(("performance/checkpoint-stall", "checkpoint"), said)
            self.assertEqual({rule for rule, _ in said},
                             {"performance/idle-comb", "performance/data-stall", "performance/checkpoint-stall"})
            stall = support.findings_of(report, "performance/data-stall")[0]
            self.assertEqual(stall["site"]["layer"], "loop")
            self.assertGreaterEqual(stall["details"]["share"], 0.1)

    def test_garbage_collections_are_told_from_a_record(self):
        with support.scratch() as folder:
            train("--launch", 1, "--steps", 18, "--pause", 0.1, "--collect-every", 3, "--record", folder / "run")
            _, report = support.audit(folder / "run")
            self.assertIn(("performance/idle-comb", "garbage-collection"), told(report["findings"]))
            self.assertLessEqual(told(report["findings"], notes=False), {("performance/idle-comb", "garbage-collection")})

    def test_a_slow_rank_is_told_live(self):
        with support.scratch() as folder, support.Server(folder, "--data", folder / "data") as server:
            for attempt in range(4):  # where a busy machine holds up the other rank as long, nobody is slow
                run = f"slow{attempt}"
                train("--steps", 20, "--pause", 0.1, "--slow-rank", "1:0.15", "--run", run,
                      "--server", server.address, "--patience", 60)
                findings = support.watched(server, run)
                late = support.findings_of({"findings": findings}, "performance/straggler")
                if late:
                    break
            self.assertEqual(len(late), 1, told(findings))
            self.assertEqual(late[0]["details"]["ranks"], [1])
            self.assertEqual(late[0]["details"]["waiting"], [0])
            self.assertEqual(late[0]["details"]["kind"], "slow")
            self.assertEqual(late[0]["site"]["ranks"], [1])
            self.assertEqual(told(findings, notes=False), {("performance/straggler", "slow")})

    def test_the_rank_that_stops_before_a_collective_is_named_live(self):
        with support.scratch() as folder:
            config = folder / "plumbd.toml"
            config.write_text("[liveness]\nhang_seconds = 1\n")
            with support.Server(folder, "--data", folder / "data", "--config", config) as server:
                trainer = start("--steps", 400, "--pause", 0.05, "--stop", "1:80", "--run", "stopped",
                                "--server", server.address)
                try:
                    def named():
                        text = support.plumb("query", "--rule", "performance/hang", "--server", server.address,
                                             "--format", "json")
                        return text.splitlines()
                    support.wait_until("a hang to be told", named)
                    incidents = [support.json.loads(line) for line in named()]
                    findings = support.findings_in(server, incidents)
                finally:
                    os.killpg(trainer.pid, signal.SIGKILL)
                    trainer.communicate()
            self.assertEqual([f["details"]["ranks"] for f in findings], [[1]])
            self.assertEqual(findings[0]["details"]["waiting"], [0])
            self.assertEqual(findings[0]["details"]["kind"], "not-launched")
            self.assertEqual(findings[0]["level"], "error")


if __name__ == "__main__":
    support.main()
