"""The audit's verdict on a router's dump agrees with the result of an intervention on the router.

Each case is one call of one of the example's routers on random logits, written as a safetensors dump. The router is
then run again with other suffixes: that, and not its name, is the truth.
"""

import dataclasses
import itertools
import math
import unittest

import torch

import support
from intervention import Flips, intervene
from probes import POLICY_NAMES
from routers import POLICIES, Routing, route
from safetensors_file import write_routing

FUTURE, BATCH = "causality/moe-future-leak", "causality/moe-batch-dependence"
SEQUENCES, LENGTH = 4, 32
TYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclasses.dataclass
class Case:
    layer: str
    policy: str
    factor: float
    routing: Routing
    again: Routing  # another batch: in one pool, a stored number per expert has the same effect as a leak
    truth: Flips

    @property
    def refused(self):
        return self.routing.dropped > 0


def cases():
    shapes = [(4, 1), (8, 1), (8, 2), (16, 4)]
    grid = itertools.product(POLICIES, shapes, (1.0, 3.0), range(3))
    for number, (policy, (experts, top_k), factor, seed) in enumerate(grid):
        random = torch.Generator().manual_seed(1000 * seed + 10 * experts + top_k)
        logits = torch.randn(SEQUENCES * LENGTH, experts, generator=random).to(TYPES[seed])
        truth = intervene(lambda x: route(policy, x, top_k, factor).assigned,
                          logits, SEQUENCES, LENGTH, random)
        again = torch.randn(SEQUENCES * LENGTH, experts, generator=random).to(TYPES[seed])
        yield Case(f"case.{number}", policy, factor, route(policy, logits, top_k, factor),
                   route(policy, again, top_k, factor), truth)


def column_bits(routing):
    """Returns how improbable it is, in bits, that every expert has exactly C tokens if each had a threshold of its own."""
    tokens, experts = routing.logits.shape
    share = routing.capacity / tokens
    chance = (math.comb(tokens, routing.capacity) * share ** routing.capacity
              * (1 - share) ** (tokens - routing.capacity))
    return -experts * math.log2(chance)


class Agreement(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cases = list(cases())
        with support.scratch() as folder:
            for case in cls.cases:
                for step, routing in enumerate((case.routing, case.again)):
                    write_routing(folder / f"{case.layer}-{step}.safetensors", routing, SEQUENCES,
                                  LENGTH, layer=case.layer, step=step, rank=0, run="dumps",
                                  policy=POLICY_NAMES[case.policy])
            cls.status, cls.report = support.audit(folder)

    def check_each(self, check, *policies):
        """Calls check(case) for the cases of the given policies (by default all). There must be at least one."""
        chosen = [case for case in self.cases if not policies or case.policy in policies]
        self.assertTrue(chosen)
        for case in chosen:
            with self.subTest(layer=case.layer, policy=case.policy, factor=case.factor,
                              shape=tuple(case.routing.logits.shape), k=case.routing.top_k,
                              dtype=case.routing.logits.dtype):
                check(case)

    def verdict(self, rule, case):
        found = [v for v in support.verdicts_of(self.report, rule, case.layer)
                 if v["site"]["step_first"] == 0]
        self.assertEqual(len(found), 1, f"{rule} reported: {found}")
        return found[0]

    def test_the_directory_is_read_whole(self):
        self.assertEqual(self.status, 1)
        self.assertEqual([i["problems"] for i in self.report["inputs"] if i["problems"]], [])
        self.assertEqual(self.report["coverage"]["dropped"], 0)

    def test_no_leak_passes_and_no_clean_router_is_accused(self):
        def check(case):
            verdict = self.verdict(FUTURE, case)
            self.assertNotEqual(verdict["verdict"], "pass" if case.truth.future else "finding",
                                verdict)
        self.check_each(check)

    def test_a_leak_that_happened_is_proved_and_named(self):
        expected = {"score-drop": "score-capacity", "expert-choice": "expert-choice"}
        proved = []

        def check(case):
            if not case.truth.future:
                return
            found = support.findings_of(self.report, FUTURE, case.layer)
            self.assertEqual(len(found), 1)
            level = {"proved": "error", "heuristic": "warning"}
            self.assertEqual(found[0]["level"], level[found[0]["strength"]])
            # A few experts may have exactly their capacity by chance.
            if case.policy == "expert-choice":
                self.assertEqual(found[0]["strength"] == "proved", column_bits(case.routing) >= 20)
            elif found[0]["details"]["saturated_experts"] >= 6:
                self.assertEqual(found[0]["strength"], "proved")
            proved.append(found[0]["strength"] == "proved")
            self.assertEqual(found[0]["details"]["policy"], expected[case.policy])
        self.check_each(check, *expected)
        self.assertGreater(2 * sum(proved), len(proved))

    def test_dropless_passes(self):
        self.check_each(lambda case: self.assertEqual(
            self.verdict(FUTURE, case)["verdict"], "pass"), "dropless")

    def test_first_come_first_served_is_clean_but_depends_on_the_batch(self):
        def check(case):
            if not case.refused:
                return
            verdict = self.verdict(FUTURE, case)
            self.assertEqual(verdict["verdict"], "pass", verdict)
            self.assertEqual(verdict["details"]["policy"], "fifo-capacity")
            found = support.findings_of(self.report, BATCH, case.layer)
            self.assertEqual([f["level"] for f in found], ["warning"])
        self.check_each(check, "fifo")

    def test_an_expert_that_never_filled_proves_nothing(self):
        def check(case):
            if not case.refused:
                self.assertEqual(self.verdict(FUTURE, case)["verdict"], "inconclusive")
        self.check_each(check, "fifo", "score-drop")

    def test_batch_dependence_never_contradicts_the_intervention(self):
        def check(case):
            verdict = self.verdict(BATCH, case)["verdict"]
            depends = case.truth.later or case.truth.earlier
            self.assertNotEqual(verdict, "pass" if depends else "finding")
        self.check_each(check)


if __name__ == "__main__":
    support.main()
