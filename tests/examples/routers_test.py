"""The example's routers behave as their names state, and leak where the taxonomy predicts."""

import itertools
import unittest

import torch

import support
from data import TextBatches, VOCABULARY, load_documents
from intervention import Flips, cuts, intervene
from model import Model
from routers import POLICIES, expert_capacity, route

TRUTH = {
    "dropless": Flips(future=False, earlier=False, later=False),
    "fifo": Flips(future=False, earlier=False, later=True),
    "score-drop": Flips(future=True, earlier=True, later=True),
    "expert-choice": Flips(future=True, earlier=True, later=True),
}
SEQUENCES, LENGTH = 3, 24


def random_logits(seed, experts, dtype=torch.float32, rows=SEQUENCES * LENGTH):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(rows, experts, generator=random).to(dtype), random


class Truth(unittest.TestCase):
    def test_every_router_leaks_exactly_where_the_taxonomy_states(self):
        shapes = [(4, 1), (8, 2), (16, 3)]
        types = (torch.float32, torch.bfloat16, torch.float16)
        for policy, seed, (experts, top_k) in itertools.product(POLICIES, range(3), shapes):
            dtype = types[seed]
            with self.subTest(policy=policy, seed=seed, experts=experts, k=top_k, dtype=dtype):
                logits, random = random_logits(seed, experts, dtype)
                found = intervene(lambda x: route(policy, x, top_k, 1.0).assigned,
                                  logits, SEQUENCES, LENGTH, random)
                self.assertEqual(found, TRUTH[policy])

    def test_with_room_for_all_only_expert_choice_leaks(self):
        for policy in POLICIES:
            with self.subTest(policy=policy):
                logits, random = random_logits(7, 8)
                found = intervene(lambda x: route(policy, x, 2, 3.0).assigned,
                                  logits, SEQUENCES, LENGTH, random)
                clean = Flips()
                self.assertEqual(found, TRUTH[policy] if policy == "expert-choice" else clean)

    def test_in_the_model_another_suffix_of_the_text_reroutes_earlier_bytes(self):
        documents = load_documents()
        batch = TextBatches(documents, SEQUENCES, LENGTH, "window", seed=3)[0]
        for policy in POLICIES:
            with self.subTest(policy=policy):
                torch.manual_seed(3)
                model = Model(VOCABULARY, LENGTH, dim=16, layers=1, experts=4, top_k=2,
                              policy=policy, capacity_factor=1.0)
                self.assertEqual(self._flips_of_text(model, batch), TRUTH[policy].future)

    @staticmethod
    def _flips_of_text(model, batch):
        def assigned(tokens):
            with torch.no_grad():
                return model(tokens, batch.sequence_id, batch.position)[1][0].assigned

        base, random = assigned(batch.tokens), torch.Generator().manual_seed(0)
        for cut in cuts(LENGTH):
            changed = batch.tokens.clone()
            changed[1, cut:] = torch.randint(32, 127, (LENGTH - cut,), generator=random)
            earlier = slice(LENGTH, LENGTH + cut)
            if not torch.equal(assigned(changed)[earlier], base[earlier]):
                return True
        return False


class Mechanics(unittest.TestCase):
    def test_capacity_is_the_rounded_up_share(self):
        self.assertEqual(expert_capacity(100, 8, 2, 1.0), 25)
        self.assertEqual(expert_capacity(101, 8, 2, 1.0), 26)
        self.assertEqual(expert_capacity(10, 8, 1, 0.01), 1)
        self.assertEqual(expert_capacity(10, 2, 2, 100.0), 10)

    def test_fifo_keeps_the_first_and_score_drop_the_best(self):
        logits = torch.tensor([[1.0, 0], [2, 0], [4, 0], [3, 0], [0, 9]])
        fifo = route("fifo", logits, 1, 0.8)
        self.assertEqual(fifo.capacity, 2)
        self.assertEqual(fifo.keep.squeeze(1).tolist(), [True, True, False, False, True])
        best = route("score-drop", logits, 1, 0.8)
        self.assertEqual(best.keep.squeeze(1).tolist(), [False, False, True, True, True])

    def test_expert_choice_fills_every_expert_exactly(self):
        logits, _ = random_logits(1, 8)
        routing = route("expert-choice", logits, 2, 1.0)
        self.assertEqual(set(routing.assigned.sum(dim=0).tolist()), {routing.capacity})
        self.assertGreater(len(set(routing.assigned.sum(dim=1).tolist())), 1)

    def test_none_holds_more_than_its_capacity_and_drops_happen(self):
        for policy, seed in itertools.product(("fifo", "score-drop"), range(5)):
            with self.subTest(policy=policy, seed=seed):
                logits, _ = random_logits(seed, 8)
                routing = route(policy, logits, 2, 1.0)
                self.assertLessEqual(routing.assigned.sum(dim=0).max().item(), routing.capacity)
                self.assertGreater(routing.dropped, 0)

    def test_equal_scores_are_kept_in_row_order(self):
        routing = route("score-drop", torch.ones(6, 1), 1, 0.5)
        self.assertEqual(routing.keep.squeeze(1).tolist(), [True] * 3 + [False] * 3)

    def test_bad_arguments_describe_what_was_expected(self):
        logits = torch.zeros(4, 2)
        with self.assertRaisesRegex(ValueError, "expected one of dropless"):
            route("top-2", logits, 1)
        for top_k in (0, 3):
            with self.assertRaisesRegex(ValueError, "expected 1 to 2"):
                route("dropless", logits, top_k)

    def test_weights_of_a_token_that_keeps_all_sum_to_one(self):
        logits, _ = random_logits(2, 8)
        sums = route("dropless", logits, 2).weights.sum(dim=1)
        torch.testing.assert_close(sums, torch.ones_like(sums))


class Data(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.documents = load_documents()

    def batches(self, layout, seed=0, rank=0):
        return TextBatches(self.documents, 4, 64, layout, seed, rank, steps=5)

    def test_a_batch_depends_on_seed_rank_and_number_alone(self):
        for layout in ("packed", "window"):
            same = [self.batches(layout)[3].tokens for _ in range(2)]
            self.assertTrue(torch.equal(*same))
            for other in (self.batches(layout, seed=1)[3], self.batches(layout, rank=1)[3],
                          self.batches(layout)[4]):
                self.assertFalse(torch.equal(same[0], other.tokens))

    def test_sequence_and_position_name_every_token_once(self):
        for layout in ("packed", "window"):
            batch = self.batches(layout)[0]
            pairs = set(zip(batch.sequence_id.flatten().tolist(),
                            batch.position.flatten().tolist()))
            self.assertEqual(len(pairs), batch.tokens.numel())

    def test_targets_are_the_next_token_within_a_document(self):
        batch = self.batches("packed")[1]
        inside = batch.sequence_id[:, 1:] == batch.sequence_id[:, :-1]
        self.assertTrue(torch.equal(batch.targets[:, :-1][inside], batch.tokens[:, 1:][inside]))

    def test_packed_rows_hold_several_documents_and_no_padding(self):
        batch = self.batches("packed")[2]
        self.assertFalse(batch.padding.any())
        for row in batch.sequence_id:
            self.assertGreater(len(row.unique()), 1)

    def test_a_missing_text_names_its_place(self):
        with self.assertRaisesRegex(FileNotFoundError, "/nonexistent"):
            load_documents("/nonexistent/*.txt")


if __name__ == "__main__":
    support.main()
