"""Takes capsules of a real trainer whose router leaks: from every rank at one step, also while the server is killed.
They are judged again with the same finding."""

import json
import os
import subprocess
import sys
import unittest

import support

FUTURE = "causality/moe-future-leak"


def start_plumbd(folder, **more):
    return support.Server(folder, "--data", folder / "data", "--log-level", "info", **more)


def start_rank(rank, world, server, steps):
    return subprocess.Popen(
        [support.program("moe_cpp"), "--router", "score-drop", "--steps", str(steps), "--run",
         "leak", "--server", server, "--patience", "60000"], stdout=subprocess.DEVNULL,
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world)})


def findings(server):
    lines = support.plumb("query", "--server", server.address, "--rule", FUTURE, "--format",
                          "json").splitlines()
    return support.findings_in(server, map(json.loads, lines))


class Capsule(unittest.TestCase):
    def judged_again(self, folder, server, finding, ranks):
        out = folder / finding["fingerprint"]
        support.plumb("capsule", finding["fingerprint"], "--output", out, "--server",
                      server.address)
        manifest = json.loads((out / "manifest.json").read_text())
        self.assertEqual(sorted(f["rank"] for f in manifest["files"]), ranks)
        self.assertEqual({f["step"] for f in manifest["files"]}, {manifest["step"]})
        self.assertEqual(manifest["missing"], [])
        status, report = support.audit(out)
        self.assertEqual(status, 1)
        self.assertEqual([i["problems"] for i in report["inputs"] if i["problems"]], [])
        same = [f for f in report["findings"] if f["fingerprint"] == finding["fingerprint"]]
        self.assertEqual([(f["rule"], f["level"], f["strength"]) for f in same],
                         [(FUTURE, "error", "proved")])
        self.assertEqual(same[0]["site"]["ranks"], ranks)

    def test_every_rank_through_the_death_of_the_server(self):
        with support.scratch() as folder:
            server = start_plumbd(folder)
            trainers = [start_rank(r, 2, server.address, 1000000) for r in range(2)]
            try:
                support.wait_until("findings at both layers", lambda: len(findings(server)) == 2)
                server.kill()
                server = start_plumbd(folder, grpc=server.address)
                found = findings(server)
                self.assertEqual(len(found), 2)
                for finding in found:
                    self.judged_again(folder, server, finding, [0, 1])
            except AssertionError:
                for seen in (folder / "plumbd.log", *folder.glob("*/manifest.json")):
                    print(f"{seen}:\n{seen.read_text()}", file=sys.stderr)
                raise
            finally:
                for process in trainers:
                    process.terminate()
                    process.wait()
                server.kill()


if __name__ == "__main__":
    support.main()
