"""Audits dumps of real gloo all-reduces of 2 to 8 ranks: the replay names gloo's algorithm.

The ranks are threads with a process group each. gloo's ring goes down the ranks and begins, for the segment of rank c,
at rank c - 1; its segments are at most 1 MiB, at least two per rank.
"""

import datetime
import itertools
import threading
import unittest

import torch
import torch.distributed as dist

import support
from safetensors_file import write

RANKS = (2, 3, 4, 5, 8)
DTYPES = {torch.float16: "f16", torch.float32: "f32"}
# Fewer elements than ranks, odd tails, parts of unequal length, and more than 1 MiB per segment.
COUNTS = (1, 3, 17, 64, 1000, 4097, 65536, 300001, 1100003)
SAMPLES = 512
CERTAIN = 300  # from this number of samples on the model must be proved


def reduce_with_gloo(inputs):
    """Sums inputs[r] over ranks, each a thread; returns every rank's result."""
    ranks = len(inputs)
    store, results, errors = dist.HashStore(), [None] * ranks, []

    def rank(number):
        try:
            options = dist.ProcessGroupGloo._Options()
            options._timeout = datetime.timedelta(seconds=support.PATIENCE)
            options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
            group = dist.ProcessGroupGloo(store, number, ranks, options)
            outputs = []
            for tensor in inputs[number]:
                buffer = tensor.clone()
                group.allreduce([buffer]).wait()
                outputs.append(buffer)
            results[number] = outputs
        except Exception as error:  # reported by the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def gradients(ranks, count, dtype, seed):
    """Returns gradients of a least-squares fit: every rank has its own batch, the fit is shared."""
    random = torch.Generator().manual_seed(seed)
    true = torch.randn(count, generator=random)
    found = []
    for _ in range(ranks):
        batch = torch.randn(4, generator=random)
        noise = torch.randn(count, generator=random)
        found.append((0.01 * (true * batch.square().mean() + 0.3 * noise)).to(dtype))
    return found


def sampled_offsets(count, ranks, seed):
    """Returns all elements of a small buffer; otherwise some at random, and some around the parts' boundaries."""
    if count <= SAMPLES:
        return torch.arange(count)
    random = torch.Generator().manual_seed(seed)
    near = [count * part // ranks + shift for part in range(1, ranks) for shift in (-3, -1, 0, 2)]
    chosen = torch.randperm(count, generator=random)[:SAMPLES - len(near)]
    return torch.unique(torch.cat([chosen, torch.tensor(near)]))


class Gloo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with support.scratch() as folder:
            for ranks in RANKS:
                cls.reduce_all(ranks, folder)
            status, cls.report = support.audit(folder, "--rules", "precision/collective-*")
        if status not in (0, 1):
            raise AssertionError(f"plumb audit ended with {status}")
        cls.verdicts = {verdict["site"]["layer"]: verdict for verdict in cls.report["verdicts"]
                        if verdict["rule"] == "precision/collective-sum"}

    @classmethod
    def reduce_all(cls, ranks, folder):
        calls = [(dtype, count) for dtype, count in itertools.product(DTYPES, COUNTS)]
        by_call = [gradients(ranks, count, dtype, 7 * count + ranks) for dtype, count in calls]
        results = reduce_with_gloo([[call[rank] for call in by_call] for rank in range(ranks)])
        for number, (dtype, count) in enumerate(calls):
            offsets = sampled_offsets(count, ranks, count)
            name = f"{ranks}.{DTYPES[dtype]}.{count}"
            write(folder / f"{name}.safetensors", {
                "inputs": torch.stack([x[offsets] for x in by_call[number]]),
                "output": torch.stack([results[rank][number][offsets] for rank in range(ranks)]),
                "offsets": offsets,
            }, {"kind": "reduction", "layer": name, "op": "sum", "count": count})

    def each(self):
        for ranks, dtype, count in itertools.product(RANKS, DTYPES.values(), COUNTS):
            yield ranks, dtype, count, self.verdicts[f"{ranks}.{dtype}.{count}"]

    def test_every_call_is_explained(self):
        for ranks, dtype, count, verdict in self.each():
            with self.subTest(ranks=ranks, dtype=dtype, count=count):
                details = verdict["details"]
                self.assertEqual(details["matches"], details["samples"])
                self.assertNotEqual(details["model"]["name"], "unexplained")

    def test_ring_is_proved(self):
        for ranks, dtype, count, verdict in self.each():
            with self.subTest(ranks=ranks, dtype=dtype, count=count):
                details = verdict["details"]
                if ranks == 2 or details["samples"] < CERTAIN:
                    continue
                model = details["model"]
                self.assertTrue(details["proved"], details)
                self.assertEqual((model["name"], model["dtype"]), ("ring", dtype))
                self.assertGreaterEqual(details["discriminating"], details["needed"])
                if ranks > 3:  # for three ranks, the order 2, 1, 0 gives the same sums as 1, 2, 0
                    self.assertEqual((model["direction"], model["start"]), ("descending", ranks - 1))
                    self.assertEqual(model["segment_step"], 1)

    def test_nothing_else_is_ever_named(self):
        for ranks, dtype, count, verdict in self.each():
            with self.subTest(ranks=ranks, dtype=dtype, count=count):
                details = verdict["details"]
                if details["proved"]:
                    self.assertEqual(details["model"]["name"], "ring")
                if ranks == 2:
                    self.assertEqual(details["model"]["name"], "indistinguishable")

    def test_half_precision_is_noted_and_full_precision_passes(self):
        for ranks, dtype, count, verdict in self.each():
            if verdict["details"]["samples"] < CERTAIN or ranks == 2:
                continue
            with self.subTest(ranks=ranks, dtype=dtype, count=count):
                self.assertEqual(verdict["verdict"], "finding" if dtype == "f16" else "pass")
        levels = {finding["level"] for finding in self.report["findings"]}
        self.assertEqual(levels, {"note"})

    def test_ranks_agree(self):
        for verdict in self.verdicts.values():
            self.assertNotIn("ranks_with_other_output", verdict["details"])


if __name__ == "__main__":
    support.main()
