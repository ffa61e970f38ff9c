"""Finds where the time of real ranks goes, from their own spans: each planted fault is named, live or from a record,
and ranks that merely wait are not blamed."""

import os
import signal
import socket
import subprocess
import sys
import time
import unittest

import support

EXAMPLE = support.REPOSITORY / "examples" / "ddp_pytorch" / "train.py"
SMALL = ["--quiet", "--watch", "weights", "--hidden", "16", "--batch", "2", "--seq", "16"]
LONG = bool(os.environ.get("PLUMB_LONG"))

# A notebook: steps, a pause until a line appears, steps again.
NOTEBOOK = """
import sys, time
sys.path.insert(0, sys.argv[1])
import plumbline
run = plumbline.init(run="notebook", server=sys.argv[2])
def cell(first):
    for step in range(first, first + 40):
        with run.step(step), run.span("forward"):
            time.sleep(0.1)
cell(0)
sys.stdin.readline()
cell(40)
run.finish(60)
"""


def start(*options, python=sys.executable):
    return subprocess.Popen([python, str(EXAMPLE), "--launch", "2", *SMALL, *map(str, options)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def train(*options):
    return support.finish(start(*options, python=support.warm.python()))


def reported(findings, notes=True):
    """Returns the findings of the performance rules. On a busy machine slow data loading may be a note, which is correct."""
    return {(f["rule"], f["cause"]["id"]) for f in findings
            if f["rule"].startswith("performance/") and (notes or f["level"] != "note")}


class TimeTest(unittest.TestCase):
    def test_healthy_ranks_are_silent(self):
        for seed in range(5 if LONG else 1):
            with support.scratch() as folder:
                train("--steps", 18, "--pause", 0.25, "--seed", seed, "--record", folder / "run")
                _, report = support.audit(folder / "run")
                self.assertEqual(reported(report["findings"], notes=False), set(), seed)
                passed = {v["rule"] for v in support.verdicts_of(report, "performance/idle-comb")
                          + support.verdicts_of(report, "performance/data-stall")
                          + support.verdicts_of(report, "performance/straggler") if v["verdict"] == "pass"}
                passed |= {rule for rule, _ in reported(report["findings"])}  # a note
                self.assertEqual(passed, {"performance/idle-comb", "performance/data-stall", "performance/straggler"})

    def test_a_slow_loader_and_checkpoints_are_reported_from_a_record(self):
        with support.scratch() as folder:
            train("--steps", 34, "--pause", 0.04, "--slow-loader", 0.03, "--checkpoint-every", 4,
                  "--checkpoint-seconds", 0.05, "--record", folder / "run")
            _, report = support.audit(folder / "run")
            stated = reported(report["findings"])
            self.assertIn(("performance/data-stall", "data-loading"), stated)
            self.assertIn(("performance/checkpoint-stall", "checkpoint"), stated)
            self.assertEqual({rule for rule, _ in stated},
                             {"performance/idle-comb", "performance/data-stall", "performance/checkpoint-stall"})
            stall = support.findings_of(report, "performance/data-stall")[0]
            self.assertEqual(stall["site"]["layer"], "loop")
            self.assertGreaterEqual(stall["details"]["share"], 0.1)

    def test_garbage_collections_are_reported_from_a_record(self):
        with support.scratch() as folder:
            # A process of its own: in a fork of the warm one, collections skip the objects of torch and are short.
            support.finish(start("--launch", 1, "--steps", 18, "--pause", 0.1, "--collect-every", 3, "--record", folder / "run"))
            _, report = support.audit(folder / "run")
            self.assertIn(("performance/idle-comb", "garbage-collection"), reported(report["findings"]))
            self.assertLessEqual(reported(report["findings"], notes=False), {("performance/idle-comb", "garbage-collection")})

    def test_a_slow_rank_is_reported_live(self):
        with support.scratch() as folder, support.Server(folder, "--data", folder / "data") as server:
            for attempt in range(4):  # on a busy machine the other rank may be as slow; then no rank is slow
                run = f"slow{attempt}"
                train("--steps", 20, "--pause", 0.1, "--slow-rank", "1:0.15", "--run", run,
                      "--server", server.address, "--patience", 60)
                findings = support.watched(server, run)
                late = support.findings_of({"findings": findings}, "performance/straggler")
                if late:
                    break
            self.assertEqual(len(late), 1, reported(findings))
            self.assertEqual(late[0]["details"]["ranks"], [1])
            self.assertEqual(late[0]["details"]["waiting"], [0])
            self.assertEqual(late[0]["details"]["kind"], "slow")
            self.assertEqual(late[0]["site"]["ranks"], [1])
            self.assertEqual(reported(findings, notes=False), {("performance/straggler", "slow")})

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
                    support.wait_until("a hang to be reported", named)
                    incidents = [support.json.loads(line) for line in named()]
                    findings = support.findings_in(server, incidents)
                finally:
                    os.killpg(trainer.pid, signal.SIGKILL)
                    trainer.communicate()
            self.assertEqual([f["details"]["ranks"] for f in findings], [[1]])
            self.assertEqual(findings[0]["details"]["waiting"], [0])
            self.assertEqual(findings[0]["details"]["kind"], "not-launched")
            self.assertEqual(findings[0]["level"], "error")

    def test_a_notebook_between_two_cells_does_not_hang(self):
        with support.scratch() as folder:
            config = folder / "plumbd.toml"
            config.write_text("[liveness]\nhang_seconds = 1\n")
            with support.Server(folder, "--data", folder / "data", "--config", config) as server:
                notebook = subprocess.Popen([sys.executable, "-c", NOTEBOOK, str(support.REPOSITORY / "python"), server.address],
                                            stdin=subprocess.PIPE, text=True)

                def idle():
                    runs = support.plumb("runs", "--server", server.address, "--format", "json").splitlines()
                    return any(support.json.loads(run).get("liveness", {}).get("idle") for run in runs)
                support.wait_until("the notebook to idle", idle)
                time.sleep(3)  # several polls: twice as long as a hang needs
                notebook.communicate("on\n")
                self.assertEqual(notebook.returncode, 0)
                self.assertEqual(reported(support.watched(server, "notebook")), set())

    def test_the_rank_whose_shape_differs_is_named_by_the_record(self):
        """Without torch's own checks Gloo ends the process within the call; its arguments were recorded before."""
        with support.scratch() as folder:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            world = dict(os.environ, WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
            world.pop("TORCH_DISTRIBUTED_DEBUG", None)
            trainers = [subprocess.Popen([sys.executable, str(EXAMPLE), *SMALL, "--steps", "12", "--mismatch", "1:8",
                                          "--run", "shapes", "--record", str(folder / "record"), "--patience", "60"],
                                         env=dict(world, RANK=str(rank)), stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL) for rank in range(3)]
            for trainer in trainers:
                self.assertNotEqual(trainer.wait(), 0)
            reported = [f for f in support.audit(folder / "record")[1]["findings"]
                    if f["rule"] == "precision/collective-mismatch"]
            self.assertEqual([f["site"]["ranks"] for f in reported], [[1]])
            self.assertIn("1000 on rank 1", reported[0]["explanation"])

    def test_the_rank_whose_shape_differs_is_named_live(self):
        """torch checks shapes before the call (otherwise Gloo ends the process within it), and fails on all ranks."""
        with support.scratch() as folder, support.Server(folder, "--data", folder / "data") as server:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            world = dict(os.environ, WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                         GLOO_SOCKET_IFNAME="lo", TORCH_DISTRIBUTED_DEBUG="DETAIL")
            # No launcher, because it would end the others when the first has failed.
            trainers = [subprocess.Popen([sys.executable, str(EXAMPLE), *SMALL, "--steps", "12", "--mismatch", "1:8",
                                          "--run", "shapes", "--server", server.address, "--patience", "60"],
                                         env=dict(world, RANK=str(rank)), stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, text=True) for rank in range(3)]
            for trainer in trainers:
                _, errors = trainer.communicate()
                self.assertNotEqual(trainer.returncode, 0)
                self.assertIn("figures", errors)  # the failed call

            def named():
                text = support.plumb("query", "--rule", "precision/collective-mismatch", "--server", server.address,
                                     "--format", "json")
                return text.splitlines()
            support.wait_until("the mismatch to be reported", named)
            findings = support.findings_in(server, [support.json.loads(line) for line in named()])
            self.assertEqual([f["site"]["ranks"] for f in findings], [[1]])
            self.assertEqual(findings[0]["cause"]["id"], "different-count")
            self.assertIn("1000 on rank 1", findings[0]["explanation"])
            blamed = [f for f in support.watched(server, "shapes") if f["rule"].startswith("performance/")
                      and f["level"] != "note"]
            self.assertEqual(blamed, [])


if __name__ == "__main__":
    support.main()
