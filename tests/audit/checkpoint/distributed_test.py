"""PyTorch's distributed checkpoints, written by torch: by one process, by two with shards, and hostile indexes."""

import dataclasses
import os
import pickle
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
_process_class = dataclasses._process_class


def hashed(cls, init, repr, eq, order, unsafe_hash, frozen, *rest):
    """torch 1.13 uses records as defaults of records, which Python refuses since 3.11 unless they have a hash."""
    of_torch = cls.__module__.startswith("torch.") and not frozen and "__hash__" not in cls.__dict__
    return _process_class(cls, init, repr, eq, order, unsafe_hash or of_torch, frozen, *rest)


dataclasses._process_class = hashed
try:
    import torch
    try:
        import torch.distributed.checkpoint as dcp
    except ImportError:
        import torch.distributed._shard.checkpoint as dcp
except ImportError:
    print("skipped: torch is not there, or has no distributed checkpoints")
    sys.exit(77)
finally:
    dataclasses._process_class = _process_class

from files import InAFolder, PLUMB, audit, notes, problems, serious

# The program of the second process of a test: it makes shards, and one tensor that both processes hold.
SHARDS = """
import sys
sys.path.insert(0, {here!r})
import distributed_test as t
import torch, torch.distributed as dist
from torch.distributed._shard import sharded_tensor
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://{meet}", rank=rank, world_size=2)
torch.manual_seed(0)
whole, both = torch.randn(10, 6), torch.randn(4)
from torch.distributed._shard.sharded_tensor import Shard
from torch.distributed._shard.metadata import ShardMetadata
rows = whole[:6] if rank == 0 else whole[6:]
shard = Shard(rows.clone(), ShardMetadata([0 if rank == 0 else 6, 0], list(rows.shape), "rank:%d/cpu" % rank))
state = {{"model.a.weight": sharded_tensor.init_from_local_shards([shard], [10, 6]), "model.b.bias": both}}
t.dcp.save_state_dict(state, t.dcp.FileSystemWriter({out!r}))
"""


class Case(InAFolder):
    def state(self, seed=0):
        torch.manual_seed(seed)
        return {"model.a.weight": torch.randn(6, 4), "model.a.bias": torch.randn(4).bfloat16(), "model.steps": torch.arange(5),
                "optimizer.state.a.weight.exp_avg": torch.randn(6, 4), "optimizer.state.a.weight.exp_avg_sq": torch.rand(6, 4),
                "optimizer.state.a.weight.step": torch.tensor(7.0), "ema.a.weight": torch.randn(6, 4), "global_step": 70, "extra": {"lr": 0.1}}

    def write(self, state, name="step-7", **options):
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        dcp.save_state_dict(state, dcp.FileSystemWriter(str(path), **options), no_dist=True)
        return path


class Written(Case):
    def test_of_one_process(self):
        for options in ({}, {"single_file_per_rank": True}):
            with self.subTest(**options):
                path = self.write(self.state(), **options)
                status, report = audit(self.folder)
                self.assertEqual((status, problems(report), serious(report)), (0, "", []))
                self.assertEqual(sum(i["records"] for i in report["inputs"]), 7)
                self.assertEqual({i["format"] for i in report["inputs"]}, {"checkpoint"})
                sites = {(v["site"]["layer"], v["site"]["op"]) for v in report["verdicts"] if v["rule"] == "health/all-zero"}
                self.assertLessEqual({("a.weight", "weight"), ("a.bias", "weight"), ("a.weight", "exp_avg"), ("a.weight", "average")}, sites)
                self.assertIn("step 7 according to its name, which is used; its content states 70", notes(report))
                # If only the index is named, the parts are read under its name.
                report = audit(path / ".metadata")[1]
                self.assertEqual([i["records"] for i in report["inputs"]], [7])

    def test_against_torch_save(self):
        state = self.state()
        path = self.write(state)
        plain = self.folder / "plain" / "step-7" / "m.pt"
        plain.parent.mkdir(parents=True)
        model = {k[6:]: v for k, v in state.items() if k.startswith("model.")}
        torch.save({"model": model, "ema": {"a.weight": state["ema.a.weight"]}}, plain)
        done = subprocess.run([PLUMB, "diff", path, plain, "--expect-equal"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("equal: 4 tensors", done.stdout)

    def test_what_lies_next_to_the_tensors(self):
        """Entries that are not tensors are also compared."""
        one = self.write(self.state(), "a/step-7")
        for change, stated in (({}, "equal: 7 tensors"), ({"extra": {"lr": 0.2}}, "first difference: extra.lr: 0.1 in A, 0.2 in B"), ({"global_step": 71}, "first difference: global_step: 70 in A, 71 in B")):
            with self.subTest(stated):
                two = self.write({**self.state(), **change}, "b/step-7")
                for of in (two, two / ".metadata"):
                    done = subprocess.run([PLUMB, "diff", one, of, "--expect-equal"], capture_output=True, text=True)
                    self.assertEqual(done.returncode, 1 if change else 0, done.stdout + done.stderr)
                    self.assertIn(stated, done.stdout)

    def test_a_fault_is_found(self):
        for step in (7, 8):
            state = self.state(step)
            if step == 8:
                state["optimizer.state.a.weight.exp_avg_sq"][2, 3] = float("nan")
            self.write(state, f"step-{step}", single_file_per_rank=True)
        found = [(f["rule"], f["site"]["layer"], f["site"]["op"], f["site"]["step_first"]) for f in audit(self.folder)[1]["findings"]]
        self.assertEqual(found, [("precision/non-finite", "a.weight", "exp_avg_sq", 8)])

    def test_of_two_processes(self):
        out = self.folder / "step-3"
        out.mkdir()
        text = SHARDS.format(here=os.path.dirname(os.path.abspath(__file__)), meet=self.folder / "meet", out=str(out))
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "GLOO_SOCKET_IFNAME": "lo"}
        ranks = [subprocess.Popen([sys.executable, "-c", text, str(r)], env=env, stderr=subprocess.PIPE, text=True) for r in range(2)]
        errors = [r.communicate(timeout=120)[1] for r in ranks]
        self.assertEqual([r.returncode for r in ranks], [0, 0], errors)
        (self.folder / "meet").unlink(missing_ok=True)
        status, report = audit(out)
        self.assertEqual((status, problems(report), serious(report)), (0, "", []))
        torch.manual_seed(0)
        whole, both = torch.randn(10, 6), torch.randn(4)
        plain = self.folder / "plain" / "step-3" / "m.pt"
        plain.parent.mkdir(parents=True)
        for change in (0, 1):
            whole[8, 5] += change
            torch.save({"a.weight": whole, "b.bias": both}, plain)
            done = subprocess.run([PLUMB, "diff", plain, out, "--expect-equal"], capture_output=True, text=True)
            self.assertEqual(done.returncode, change, done.stdout + done.stderr)
            self.assertIn("a.weight: element [8, 5] is" if change else "equal: 2 tensors", done.stdout)


class Refused(Case):
    def refused(self, change, expected):
        path = self.write(self.state(), single_file_per_rank=True)
        with open(path / ".metadata", "rb") as file:
            metadata = pickle.load(file)
        metadata = change(metadata) or metadata
        with open(path / ".metadata", "wb") as file:
            pickle.dump(metadata, file)
        status, report = audit(self.folder)
        self.assertEqual(status, 2)
        self.assertIn(expected, problems(report))
        return report

    def test_lies(self):
        def each(**fields):
            def change(metadata):
                for key, place in metadata.storage_data.items():
                    if key.fqn == "model.a.weight":
                        for name, value in fields.items():
                            object.__setattr__(place, name, value)
            return change

        self.refused(each(offset=2**62), "found a file of")
        self.refused(each(length=2**63 - 1), "found a file of")
        self.refused(each(offset=-1), "expected a name with its file, offset and length")
        self.refused(each(relative_path="../exp/step-7/__0_0.distcp"), "expected the name of a file in the folder of the index")
        self.refused(each(relative_path="gone.distcp"), 'expected the part "gone.distcp" in the folder of its index')
        self.refused(each(offset=1), "expected")
        self.refused(lambda m: {"state_dict_metadata": {}, "torch.distributed.checkpoint.metadata": 1}, "expected the index of a distributed checkpoint")

        def overlap(metadata):
            places = list(metadata.storage_data.values())
            for place in places:
                object.__setattr__(place, "offset", 0)
                object.__setattr__(place, "length", max(p.length for p in places))
        self.refused(overlap, "expected entries that do not overlap")

    def test_without_an_index(self):
        path = self.write(self.state())
        (path / ".metadata").unlink()
        status, report = audit(self.folder)
        self.assertEqual(status, 2)
        self.assertIn("expected the index .metadata", problems(report))

    def test_calls_are_left_closed(self):
        mark = self.folder / "ran"

        class Evil:
            def __reduce__(self):
                return os.system, (f"touch {mark}",)

        def plant(metadata):
            metadata.planner_data = Evil()

        report = self.refused(lambda m: None if plant(m) else None, "posix.system (not decoded and not executed)")
        self.assertFalse(mark.exists())
        self.assertEqual(sum(i["records"] for i in report["inputs"]), 7)

    def test_damage(self):
        import random

        rng = random.Random(5)
        path = self.write(self.state(), single_file_per_rank=True)
        kept = {p: p.read_bytes() for p in path.iterdir()}
        for i in range(60):
            for file, data in kept.items():
                file.write_bytes(data)
            file = rng.choice(sorted(kept))
            data = bytearray(kept[file])
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            file.write_bytes(bytes(data[: rng.randrange(len(data))] if i % 4 == 0 else data))
            audit(self.folder)


if __name__ == "__main__":
    unittest.main()
