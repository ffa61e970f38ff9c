"""Capsules of a real trainer whose router leaks: taken from every rank at one step, also while the
server is killed, and judged again to the same finding."""

import json
import os
import signal
import subprocess
import sys
import unittest

import support

FUTURE = "causality/moe-future-leak"


def start_plumbd(folder, grpc="127.0.0.1:0"):
    port = folder / "port"
    port.unlink(missing_ok=True)
    with open(folder / "plumbd.log", "a") as log:
        server = subprocess.Popen(
            [support.program("plumbd"), "--grpc", grpc, "--http", "off", "--data",
             str(folder / "data"), "--port-file", str(port), "--log-level", "info"],
            stdout=subprocess.DEVNULL, stderr=log)
    support.wait_until("plumbd listens", port.exists)
    return server, port.read_text().strip()


def start_rank(rank, world, server, steps):
    return subprocess.Popen(
        [support.program("moe_cpp"), "--router", "score-drop", "--steps", str(steps), "--run",
         "leak", "--server", server, "--patience", "60000"], stdout=subprocess.DEVNULL,
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world)})


def plumb(*arguments, statuses=(0,)):
    done = subprocess.run([support.program("plumb"), *map(str, arguments)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=support.PATIENCE)
    if done.returncode not in statuses:
        raise AssertionError(f"plumb {arguments} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def findings(server):
    lines = plumb("query", "--server", server, "--rule", FUTURE, "--format", "json").splitlines()
    return [line.get("finding", line) for line in map(json.loads, lines)]


class Capsule(unittest.TestCase):
    def judged_again(self, folder, server, finding, ranks):
        out = folder / finding["fingerprint"]
        plumb("capsule", finding["fingerprint"], "--output", out, "--server", server)
        manifest = json.loads((out / "manifest.json").read_text())
        self.assertEqual(sorted(f["rank"] for f in manifest["files"]), ranks)
        self.assertEqual({f["step"] for f in manifest["files"]}, {manifest["step"]})
        self.assertEqual(manifest["missing"], [])
        report = json.loads(plumb("audit", out, "--format", "json", "--quiet", statuses=(1,)))
        self.assertEqual([i["problems"] for i in report["inputs"] if i["problems"]], [])
        same = [f for f in report["findings"] if f["fingerprint"] == finding["fingerprint"]]
        self.assertEqual([(f["rule"], f["level"], f["strength"]) for f in same],
                         [(FUTURE, "error", "proved")])
        self.assertEqual(same[0]["site"]["ranks"], ranks)

    def test_every_rank_through_the_death_of_the_server(self):
        with support.scratch() as folder:
            server, address = start_plumbd(folder)
            trainers = [start_rank(r, 2, address, 20000) for r in range(2)]
            try:
                support.wait_until("findings at both layers", lambda: len(findings(address)) == 2)
                server.send_signal(signal.SIGKILL)
                server.wait()
                server, address = start_plumbd(folder, address)
                for finding in findings(address):
                    self.judged_again(folder, address, finding, [0, 1])
            except AssertionError:
                for seen in (folder / "plumbd.log", *folder.glob("*/manifest.json")):
                    print(f"{seen}:\n{seen.read_text()}", file=sys.stderr)
                raise
            finally:
                for process in [*trainers, server]:
                    process.terminate()
                    process.wait()


if __name__ == "__main__":
    support.main()
