"""Digests of batches: their arithmetic, and runs whose data come again or do not."""

import json
import pathlib
import random
import subprocess

import pytest
import torch

import trainer
from plumbline._data import digests

BIN = pathlib.Path(trainer.BUILD) / "bin"
MASK = (1 << 64) - 1


def brute(rows):
    """The definition in Python's integers."""
    total = 0
    for row in rows.tolist():
        sum_ = sum(word * (digests.mixed(at) | 1) for at, word in enumerate(row)) & MASK
        total += sum_ * (2 * sum_ + (digests.mixed(~len(row)) | 1))
    return total & MASK


def value(rows):
    return digests.digest(rows) & MASK


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (8, 64), (16, 129), (40, 100), (100, 20)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_the_digest_is_its_definition(shape, dtype):
    rows = torch.randint(0, 200, shape, generator=torch.Generator().manual_seed(shape[0])).to(dtype)
    assert value(rows) == brute(rows)
    assert value(rows[torch.randperm(shape[0])]) == value(rows)
    assert (value(rows[:1]) + value(rows[1:])) & MASK == value(rows) if shape[0] > 1 else True


def near(rows, kind, rng):
    """Returns rows that differ from `rows` in little."""
    other, (number, length) = rows.clone(), rows.shape
    row, at, to = rng.randrange(number), rng.randrange(length), rng.randrange(length)
    if kind == "one token":
        other[row, at] = (other[row, at] + 1 + rng.randrange(50_000)) % 50_257
    elif kind == "two tokens swapped in a row":
        other[row, at], other[row, to] = rows[row, to], rows[row, at]
    elif kind == "one token swapped between rows":
        second = (row + 1) % number
        other[row, at], other[second, at] = rows[second, at], rows[row, at]
    elif kind == "the tails of two rows swapped":
        second = (row + 1) % number
        other[row, at:], other[second, at:] = rows[second, at:], rows[row, at:]
    elif kind == "shifted by one":
        other = torch.roll(rows, 1, 1)
    elif kind == "padded by one":
        other = torch.nn.functional.pad(rows, (0, 1))
    elif kind == "one row twice":
        other = torch.cat([rows, rows[row : row + 1]])
    return other


@pytest.mark.parametrize("kind", ["one token", "two tokens swapped in a row", "one token swapped between rows", "the tails of two rows swapped",
                                  "shifted by one", "padded by one", "one row twice"])  # fmt: skip
def test_batches_that_differ_in_little_collide_at_the_rate_of_chance(kind):
    """All 64 bits never agree; the upper 8 agree in one of 256 pairs (within six standard deviations)."""
    rng, pairs, upper, generator = random.Random(kind), 0, 0, torch.Generator().manual_seed(3)
    for _ in range(1500):
        rows = torch.randint(0, 50_257, (4, 12), generator=generator)
        other = near(rows, kind, rng)
        if sorted(rows.tolist()) == sorted(other.tolist()):
            continue
        difference = value(rows) ^ value(other)
        assert difference, (rows, other)
        pairs, upper = pairs + 1, upper + (difference >> 56 == 0)
    expected = pairs / 256
    assert pairs > 1000 and abs(upper - expected) < 6 * expected**0.5


def test_large_batches_are_sampled_by_whole_rows():
    rows = torch.arange(64 * 1000).reshape(64, 1000)
    part = digests.part(rows, 1 << 13)
    assert part.numel() <= 1 << 13 and len(part) > 4 and all((rows == one).all(1).any() for one in part)
    assert digests.part(torch.arange(30_000).reshape(1, -1), 1 << 13).tolist() == [list(range(1 << 13))]
    assert value(torch.arange(24).reshape(2, 3, 4)) == value(torch.arange(24).reshape(6, 4))


class Run:
    """What Digests needs of a run."""

    def __init__(self, redacts=False):
        self._redacts, self._step, self.series = redacts, 0, {}

    def _own_scalar(self, name, number):
        self.series.setdefault(name, []).append(number)


class Copy:
    def __init__(self, done):
        self.done = done

    def query(self):
        return self.done

    def item(self):
        return 7


@pytest.mark.parametrize("done", [True, False])
def test_a_copy_that_is_not_complete_is_dropped_without_a_wait(done):
    run = Run()
    one = digests.Digests(run)
    one._step, one._pending = 0, [(Copy(True), Copy(True)), (Copy(True), Copy(done))]
    one.step_ends(None)
    assert run.series.get("batch_digest/low") == ([14] if done else None)


def test_redacted_runs_send_no_digest():
    run = Run(redacts=True)
    one = digests.Digests(run)
    one.takes(torch.ones(2, 4, dtype=torch.int64), 0)
    one.step_ends(None)
    assert not run.series


# Two attempts of one record; `read` makes the data of one attempt, from its first step on.
CODE = """
    import sys
    import plumbline, torch
    from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, get_worker_info

    attempt, saved = int(sys.argv[1]), {saved}
    rows = torch.randint(0, 500, (480, 12), generator=torch.Generator().manual_seed(1))

    class Stream(IterableDataset):
        def __init__(self, shards): self.shards = shards
        def __iter__(self):
            worker = get_worker_info()
            return iter(rows[worker.id :: worker.num_workers] if self.shards else rows)

    def loader(epoch, sampler=None, **options):
        seed = torch.Generator().manual_seed(epoch)
        return DataLoader(rows, batch_size=8, sampler=sampler or RandomSampler(rows, generator=seed), **options)

    def read():
        {read}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(500, 8), torch.nn.Linear(8, 500)
        def forward(self, words):
            return torch.nn.functional.cross_entropy(self.head(self.embed(words[:, :-1])).flatten(0, 1), words[:, 1:].flatten())

    torch.manual_seed(0)
    model = Net()
    opt = torch.optim.Adam(model.parameters())
    if attempt:
        state = torch.load("saved.pt")
        model.load_state_dict(state["model"]); opt.load_state_dict(state["opt"])
    run = plumbline.init(run="exp1", record="runs")
    run.watch(model, opt)
    for i, words in zip(range({last} - (saved if attempt else 0)), read()):
        opt.zero_grad(); model(words).backward(); opt.step()
        if i + 1 == saved: torch.save({{"model": model.state_dict(), "opt": opt.state_dict()}}, "saved.pt")
    run.finish()
"""


def findings(tmp_path, read, last=140, saved=0):
    """Trains `last` steps. If `saved`, resumes at this step in a second process."""
    read = "\n        ".join(line for line in read.strip().splitlines())
    for attempt in "01" if saved else "0":
        trainer.run_warm(CODE.format(read=read, last=last, saved=saved), tmp_path, agent=None, arguments=(attempt,), PLUMBLINE_BUDGET="1").ok()
    done = subprocess.run([str(BIN / "plumb"), "audit", "runs", "--format", "json", "--quiet", "--rules", "health/repeated-data"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=120)  # fmt: skip
    verdicts = [v for v in json.loads(done.stdout)["verdicts"] if v["rule"] == "health/repeated-data"]
    assert verdicts
    return [v["site"]["op"] for v in verdicts if v["verdict"] == "finding"]


CASES = {  # name: (read, options, findings)
    "a resume that begins the epoch again": ("for epoch in range(9): yield from loader(epoch)", {"saved": 40, "last": 52}, ["data/resume"]),
    "a resume that skips the batches of before": ("""
first = saved if attempt else 0
for epoch in range(first // 60, 9):
    for i, words in enumerate(loader(epoch)):
        if epoch * 60 + i >= first: yield words
""", {"saved": 40, "last": 52}, []),
    "each epoch with one seed": ("for epoch in range(9): yield from loader(0)", {}, ["data/order"]),
    "each epoch with its own seed": ("for epoch in range(9): yield from loader(epoch)", {}, []),
    "a sequential sampler": ("for epoch in range(9): yield from loader(0, SequentialSampler(rows))", {}, []),
    "workers that return the same": ("yield from DataLoader(Stream(False), batch_size=8, num_workers=2)", {"last": 50}, ["data/workers"]),
    "workers that share the data": ("yield from DataLoader(Stream(True), batch_size=8, num_workers=2)", {"last": 50}, []),
    "workers of a sampler": ("for epoch in range(3): yield from loader(epoch, num_workers=2)", {"last": 50}, []),
}  # fmt: skip


@pytest.mark.skipif(not (BIN / "plumb").exists(), reason="plumb is not built")
@pytest.mark.parametrize("name", CASES)
def test_data_that_come_again_are_found(tmp_path, name):
    read, options, expected = CASES[name]
    assert findings(tmp_path, read, **options) == expected
