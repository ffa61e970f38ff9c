"""Rollouts that a trainer saved with torch.save: slime's samples and training data, batches of tensors. They are read as rollouts
by their content, and not as a checkpoint."""

import math
import os
import random
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
try:
    import numpy
    import torch
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import InAFolder, audit, notes, problems


def halves(rng, length, noise=0.01):
    """Log-probabilities of the engine and of the trainer, of tokens drawn from the engine's distribution over two."""
    engine, trainer = [], []
    for _ in range(length):
        p = 0.2 + 0.6 * rng.random()
        q = p * math.exp(rng.gauss(0, noise))
        first = rng.random() < p
        engine.append(math.log(p if first else 1 - p))
        trainer.append(math.log(q if first else 1 - q))
    return engine, trainer


def shifted(values):
    return values[1:] + values[:1]


def sample(rng, index, length, **other):
    return {
        "group_index": index // 8, "index": index, "prompt": 'What is "1 + 1"? ' * 30, "tokens": [rng.randrange(5, 30000) for _ in range(length + 7)],
        "multimodal_inputs": None, "response": "two " * length, "response_length": length, "label": "2", "reward": {"score": 1.0},
        "loss_mask": [1] * length if index % 2 else None, "weight_versions": ["3"] * (1 + index % 2), "rollout_log_probs": halves(rng, length)[0],
        "rollout_routed_experts": None, "remove_sample": False, "status": "completed", "metadata": {}, **other,
    }  # fmt: skip


def training_data(rng, change=lambda values: values, rows=48):
    data = {name: [] for name in ("tokens", "response_lengths", "loss_masks", "rollout_log_probs", "log_probs", "advantages", "rewards")}
    for row in range(rows):
        length = 40 + row
        engine, trainer = halves(rng, length)
        data["tokens"].append(torch.randint(5, 30000, (length + 9,)))
        data["response_lengths"].append(length)
        data["loss_masks"].append(torch.ones(length, dtype=torch.int32))
        data["rollout_log_probs"].append(torch.tensor(engine))
        data["log_probs"].append(torch.tensor(change(trainer)))
        data["advantages"].append(torch.full((length,), 0.25))
        data["rewards"].append(0.5)
    return data


def formats(report):
    return {i["format"] for i in report["inputs"]}


def verdict(report, rule):
    return {v["verdict"] for v in report["verdicts"] if v["rule"] == rule}


class Rollouts(InAFolder):
    def test_samples_of_slime(self):
        rng = random.Random(1)
        for step in range(3):
            samples = [sample(rng, i, 20 + i) for i in range(16)]
            samples[5].update(response_length=0, loss_mask=None, rollout_log_probs=None, status="aborted")
            self.save({"rollout_id": step, "samples": samples}, f"rollout_{step}.pt")
        status, report = audit(self.folder)
        self.assertEqual((status, problems(report), formats(report)), (0, "", {"rollout-jsonl"}))
        self.assertEqual([i["records"] for i in report["inputs"]], [15] * 3)
        self.assertIn("1 record has null in place of log-probabilities", notes(report))
        self.assertEqual(verdict(report, "drift/logit-drift"), {"inconclusive"})

    def test_training_data_of_slime(self):
        for name, change, found in (("good", list, False), ("shifted", shifted, True)):
            rng = random.Random(2)
            for step in range(4):
                self.save({"rollout_id": step, "rank": 0, "rollout_data": training_data(rng, change)}, f"{name}/{step}_0.pt")
            status, report = audit(self.folder / name)
            self.assertEqual((status, problems(report)), (int(found), ""))
            self.assertEqual({f["cause"]["id"] for f in report["findings"]}, {"misalignment"} if found else set())

    def test_batches_of_tensors(self):
        """A dict of tensors, one row a sample: dense, a view of a larger tensor, in half precision."""
        rng = random.Random(3)
        for name, names in (("verl", ("responses", "response_mask", "rollout_log_probs", "old_log_probs")),
                            ("trl", ("completion_ids", "completion_mask", "sampling_per_token_logps", "old_per_token_logps"))):  # fmt: skip
            for step in range(4):
                engine, trainer = (torch.tensor(side) for side in zip(*[halves(rng, 50) for _ in range(32)]))
                wide = torch.zeros(32, 120)
                wide[:, 10:110:2] = trainer
                values = (torch.randint(5, 900, (32, 50)), torch.ones(32, 50, dtype=torch.bool), engine.double(), wide[:, 10:110:2])
                self.save(dict(zip(names, values)), f"{name}/batch_{step}.pt")
            status, report = audit(self.folder / name)
            self.assertEqual((status, problems(report), formats(report)), (0, "", {"rollout-jsonl"}))
            self.assertEqual([i["records"] for i in report["inputs"]], [32] * 4)
            self.assertEqual(verdict(report, "drift/logit-drift"), {"pass"})

    def test_more_numbers_than_are_kept(self):
        """Numbers beyond a limit are read again from the pickle; none is lost."""
        rng = random.Random(4)
        samples = [sample(rng, i, 3000, loss_mask=[1] * 3000) for i in range(150)]
        for one in samples:
            one["log_probs"] = shifted(one["rollout_log_probs"])
        self.save({"rollout_id": 4, "samples": samples}, "rollout_4.pt")
        status, report = audit(self.folder)
        self.assertEqual((status, problems(report), report["inputs"][0]["records"]), (1, "", 150))
        self.assertIn("misalignment", {f["cause"]["id"] for f in report["findings"]})

    def test_routing_of_numpy(self):
        rng = random.Random(5)
        for step in range(2):
            samples = []
            for i in range(8):
                experts = numpy.array([[rng.sample(range(16), 2) for _ in range(3)] for _ in range(46)], dtype=numpy.int32)
                samples.append(sample(rng, i, 40, rollout_routed_experts=numpy.asfortranarray(experts) if i % 2 else experts))
            self.save({"rollout_id": step, "samples": samples}, f"{step}.pt")
        status, report = audit(self.folder)
        self.assertEqual((status, problems(report)), (0, ""))

    def test_a_wrong_value_has_its_line(self):
        rng = random.Random(6)
        samples = [sample(rng, i, 20) for i in range(4)]
        samples[2]["rollout_log_probs"][7] = 0.5
        self.save({"rollout_id": 1, "samples": samples}, "rollout_1.pt")
        status, report = audit(self.folder)
        self.assertEqual(status, 2)
        self.assertIn("a finite log-probability of at most 0 at rollout_log_probs[7] in line 3, found 0.5", problems(report))

    def test_a_checkpoint_is_none(self):
        """A checkpoint with the same names, and samples without log-probabilities, are no rollouts."""
        for name, value in (("model", {"tokens": torch.ones(3, 4), "samples": 12, "model": {"weight": torch.randn(4, 4)}}),
                            ("texts", {"rollout_id": 1, "samples": [{"prompt": "a", "response": "b", "tokens": [1, 2]}]})):  # fmt: skip
            path = self.save(value, f"{name}/x.pt")
            _, report = audit(path)
            self.assertEqual(formats(report), {"checkpoint"})

    def test_damaged_files(self):
        """No byte that changes ends the program or makes a finding of a checkpoint."""
        rng = random.Random(7)
        path = self.save({"rollout_id": 0, "rank": 0, "rollout_data": training_data(rng, rows=2)}, "0_0.pt")
        whole = path.read_bytes()
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(min(len(data), 6000))] = rng.randrange(256)
            path.write_bytes(data if rng.random() < 0.7 else data[: rng.randrange(len(data))])
            status, report = audit(path)
            self.assertIn(status, (0, 1, 2))


if __name__ == "__main__":
    unittest.main()
