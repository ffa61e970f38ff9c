"""A real training run, judged live by plumbd and offline from its record, has the same findings."""

import unittest

import support

FUTURE, BATCH = "causality/moe-future-leak", "causality/moe-batch-dependence"
ROUTERS = ("dropless", "fifo", "score-drop", "expert-choice")
LAYERS = ("layers.0", "layers.1")


def fingerprints(findings):
    return {(f["rule"], f["site"]["layer"], f["site"]["op"]): f["fingerprint"] for f in findings}


class Judged(unittest.TestCase):
    """One server; one run of two ranks for each router, both streamed and recorded."""

    @classmethod
    def setUpClass(cls):
        cls.audits, cls.live = {}, {}
        with support.scratch() as folder, support.Server(folder) as server:
            for router in ROUTERS:
                support.train("--router", router, "--steps", 12, "--launch", 2, "--run", router,
                              "--server", server.address, "--record", folder / router,
                              "--patience", support.PATIENCE)
                cls.audits[router] = support.audit(folder / router)
            for router in ROUTERS:
                cls.live[router] = support.watched(server, router)

    def findings(self, router, rule):
        return support.findings_of(self.audits[router][1], rule)

    def test_records_are_whole(self):
        for router in ROUTERS:
            with self.subTest(router):
                report = self.audits[router][1]
                self.assertEqual([i["problems"] for i in report["inputs"] if i["problems"]], [])
                self.assertEqual(report["coverage"]["dropped"], 0)
                self.assertEqual({i["format"] for i in report["inputs"]}, {"run-record"})
                self.assertEqual(len(report["inputs"]), 2)

    def test_dropless_passes(self):
        status, report = self.audits["dropless"]
        self.assertEqual(status, 0)
        for layer in LAYERS:
            verdicts = support.verdicts_of(report, FUTURE, layer)
            self.assertTrue(verdicts)
            self.assertEqual({v["verdict"] for v in verdicts}, {"pass"})
        self.assertEqual([f for f in report["findings"] if f["rule"].startswith("causality/")], [])

    def test_first_come_first_served_depends_on_the_batch_only(self):
        status, report = self.audits["fifo"]
        self.assertEqual(status, 0)
        self.assertEqual(self.findings("fifo", FUTURE), [])
        found = self.findings("fifo", BATCH)
        self.assertEqual({f["site"]["layer"] for f in found}, set(LAYERS))
        self.assertEqual({f["level"] for f in found}, {"warning"})

    def test_drop_by_score_is_proved_to_leak(self):
        status, _ = self.audits["score-drop"]
        self.assertEqual(status, 1)
        found = self.findings("score-drop", FUTURE)
        self.assertEqual({f["site"]["layer"] for f in found}, set(LAYERS))
        for finding in found:
            self.assertEqual((finding["strength"], finding["level"]), ("proved", "error"))
            self.assertEqual(finding["cause"]["id"], "drop-by-score")
            self.assertEqual(finding["details"]["policy"], "score-capacity")
            self.assertEqual(finding["site"]["run"], "score-drop")
            self.assertTrue(finding["witness"])

    def test_expert_choice_is_proved_to_leak(self):
        found = self.findings("expert-choice", FUTURE)
        self.assertEqual({f["site"]["layer"] for f in found}, set(LAYERS))
        self.assertEqual({f["strength"] for f in found}, {"proved"})
        self.assertEqual({f["details"]["policy"] for f in found}, {"expert-choice"})

    def test_live_and_offline_agree(self):
        for router in ROUTERS:
            with self.subTest(router):
                offline = self.audits[router][1]["findings"]
                self.assertEqual(fingerprints(self.live[router]), fingerprints(offline))

    def test_a_live_finding_states_what_the_audit_states(self):
        offline = {f["fingerprint"]: f for f in self.audits["score-drop"][1]["findings"]}
        for finding in self.live["score-drop"]:
            twin = offline[finding["fingerprint"]]
            for field in ("rule", "level", "strength", "title", "cause", "measured", "witness"):
                self.assertEqual(finding.get(field), twin.get(field), field)


if __name__ == "__main__":
    support.main()
