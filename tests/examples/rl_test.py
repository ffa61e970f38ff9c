"""Policy gradient with an engine process of its own: faults of its rollouts are named from the live halves of both
processes, from their records and from the JSONL, and all three agree.
"""

import os
import subprocess
import unittest

import support

EXAMPLE = support.REPOSITORY / "examples" / "rl_pytorch"

# The fault, and the cause that must be named; None: no warning or error.
SINS = {
    "none": None,
    "batch-shape": None,
    "temperature": "temperature",
    "hidden-temperature": "unknown",  # both sides log raw probabilities: a cut tail leaves the same marks
    "trainer-temperature": "temperature",
    "top-p": "truncation",
    "off-by-one": "misalignment",
    "retokenised": "retokenisation",
    "zero-filled": "zero-filled",
    "missed-sync": "missed-sync",
    "stale-cache": "stale-cache",
}

# A training of 60 steps takes 6 s of CPU. Always tested: a sampler, an index, weights, a file that differs from the
# halves; healthy trainings are those of the other tests.
SHORT = ("temperature", "off-by-one", "missed-sync", "retokenised")
LONG = bool(os.environ.get("PLUMB_LONG"))


def train(folder, sin, *options):
    command = [support.warm.python(), str(EXAMPLE / "train.py"), "--sin", sin, "--jsonl",
               str(folder / "rollouts.jsonl"), "--record", str(folder / "record"),
               "--patience", str(support.PATIENCE), *options]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(
        [str(EXAMPLE), os.environ.get("PYTHONPATH", "")]))
    return support.finish(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment,
                                           stderr=subprocess.STDOUT, text=True))


def alarms(findings):
    """Returns (rule, level, cause) of warnings and errors of the drift rules."""
    return sorted((f["rule"], f["level"], f["cause"]["id"]) for f in findings
                  if f["rule"].startswith("drift/") and f["level"] != "note")


class Rollouts(unittest.TestCase):
    def judge(self, sin, *options):
        with support.scratch() as folder:
            train(folder, sin, *options)
            _, record = support.audit(folder / "record")
            _, jsonl = support.audit(folder / "rollouts.jsonl")
        self.assertEqual([p for i in record["inputs"] + jsonl["inputs"] for p in i["problems"]], [])
        return record, jsonl

    def test_each_sin_is_named_and_nothing_else_is(self):
        for sin in SINS if LONG else SHORT:
            cause = SINS[sin]
            with self.subTest(sin=sin):
                record, jsonl = self.judge(sin, "--steps", "60")
                found = alarms(record["findings"])
                if sin == "retokenised":  # the file has one list of tokens, the halves have two
                    self.assertIn("drift/record-invalid", [f[0] for f in alarms(jsonl["findings"])])
                else:
                    self.assertEqual(alarms(jsonl["findings"]), found)
                if cause is None:
                    self.assertEqual(found, [])
                else:
                    self.assertEqual({f[2] for f in found}, {cause}, found)

    def test_weights_in_few_bits_and_updates_in_flight_are_healthy(self):
        for options in (["--bits", "int8"], ["--in-flight"]):  # the next test covers a lag
            with self.subTest(options=options):
                _, jsonl = self.judge("none", "--steps", "40", *options)
                self.assertEqual(alarms(jsonl["findings"]), [])

    def test_a_third_pass_splits_staleness_from_numerics(self):
        record, jsonl = self.judge("none", "--steps", "40", "--lag", "3", "--third-pass")
        self.assertEqual(alarms(jsonl["findings"]), [])  # updates in flight are healthy
        splits = [next(v["details"] for v in report["verdicts"] if v["rule"] == "drift/staleness")
                  for report in (record, jsonl)]
        for key in ("split_tokens", "k2_staleness", "k2_numerics", "k2_cross"):
            self.assertAlmostEqual(splits[0][key], splits[1][key], delta=1e-6 + 1e-6 * splits[1][key])
        whole = splits[0]["k2_staleness"] + splits[0]["k2_numerics"] + splits[0]["k2_cross"]
        self.assertGreater(splits[0]["k2_staleness"], 0)
        self.assertGreater(splits[0]["k2_numerics"], 0)
        # If the lag is 0, the second pass repeats the first.
        self.assertLess(splits[0]["k2_trainer_itself"], 1e-12)
        self.assertLess(whole, 1)

    def test_the_live_server_states_the_same(self):
        with support.scratch() as folder, support.Server(folder) as server:
            train(folder, "top-p", "--steps", "40", "--server", server.address)
            live = support.watched(server, "rl")
            _, record = support.audit(folder / "record")
        found = {f["fingerprint"]: f["cause"]["id"] for f in record["findings"]
                 if f["rule"].startswith("drift/")}
        self.assertIn("truncation", found.values())
        stated = {f["fingerprint"]: f["cause"]["id"] for f in live if f["rule"].startswith("drift/")}
        self.assertEqual(stated, found)


if __name__ == "__main__":
    support.main()
