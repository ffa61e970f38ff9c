"""The trainer learns, and watching it changes no bit of what it learns."""

import os
import unittest

import support

LONG = bool(os.environ.get("PLUMB_LONG"))


class Losses(unittest.TestCase):
    STEPS = 40

    def run_once(self, folder, name, *options):
        log = folder / f"{name}.jsonl"
        support.train("--router", "score-drop", "--steps", self.STEPS, "--log", log, *options)
        return support.exact(log)

    def test_probes_change_nothing(self):
        with support.scratch() as folder, support.Server(folder) as server:
            off = self.run_once(folder, "off", "--launch", 2, "--probes", "off")
            self.assertEqual(len(off), self.STEPS)
            watched = {"both": ["--server", server.address, "--record", folder / "both"],
                       "absent": ["--server", "127.0.0.1:1"]}
            if LONG:  # the two halves of "both", each alone
                watched |= {"server": ["--server", server.address], "record": ["--record", folder / "record"]}
            for name, options in watched.items():
                with self.subTest(name):
                    on = self.run_once(folder, name, "--launch", 2, "--run", name, *options)
                    self.assertEqual(on, off)
            # The probes were active.
            judged = support.audit(folder / "both")[1]["coverage"]["judged"]
            self.assertGreater(judged, 0)

    def test_a_server_that_dies_midway_changes_nothing(self):
        with support.scratch() as folder, support.Server(folder) as server:
            # Seconds of training, longer than a pause of this test.
            options = ["--router", "expert-choice", "--steps", 5 * self.STEPS]
            off = self.run_once(folder, "off", "--probes", "off", *options)
            log = folder / "killed.jsonl"
            process = support.start_training(*options, "--log", log, "--server", server.address)
            support.wait_until("some steps", lambda: process.poll() is not None
                               or len(support.log_lines(log)) >= 5)
            before = len(support.log_lines(log))
            server.kill()
            support.finish(process)
            self.assertLess(before, len(off), "the trainer was done before the server died")
            self.assertEqual(support.exact(log), off)

    def test_the_loss_falls_for_every_router_and_drops_happen_from_the_first_step(self):
        for router in ("dropless", "fifo", "score-drop", "expert-choice"):
            with self.subTest(router=router), support.scratch() as folder:
                log = folder / "log.jsonl"
                support.train("--router", router, "--steps", 60, "--probes", "off", "--log", log)
                losses = [float.fromhex(line["loss"]) for line in support.log_lines(log)]
                # Bytes of this text: log 257 = 5.55 at first; its letter frequencies give 3.3.
                self.assertLess(sum(losses[-5:]) / 5, sum(losses[:5]) / 5 - 1.0)
                if router in ("fifo", "score-drop"):
                    for line in support.log_lines(log)[:2]:
                        self.assertGreater(float.fromhex(line["dropped"]), 0)

    def test_the_seed_alone_decides(self):
        with support.scratch() as folder:
            runs = [self.run_once(folder, name, "--probes", "off", "--seed", seed)
                    for name, seed in (("first", 1), ("again", 1), ("other", 2))]
            self.assertEqual(runs[0], runs[1])
            self.assertNotEqual(runs[0], runs[2])

    def test_a_rank_that_fails_ends_the_others(self):
        with self.assertRaisesRegex(AssertionError, "(?s)ended with [12].*No such file"):
            support.train("--launch", 2, "--probes", "off", "--log", "/nonexistent/log.jsonl")


if __name__ == "__main__":
    support.main()
