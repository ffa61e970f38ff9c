"""plumb diff --expect-equal and the values next to the tensors: for each kind, two files that differ in one value and
are never reported as equal."""

import argparse
import collections
import copy
import datetime
import decimal
import json
import os
import pathlib
import random
import subprocess
import sys
import types
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(__file__))
try:
    import numpy
    import torch
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import InAFolder, PLUMB, audit, safetensors, train


def python_random(seed):
    return random.Random(seed).getstate()


def numpy_random(seed):
    return numpy.random.RandomState(seed).get_state()


def quantised(scale=0.1, value=1.0):
    return torch.quantize_per_tensor(torch.tensor([0.0, value, 2.0]), scale, 0, torch.qint8)


def sparse(value=3.0, at=1):
    return torch.sparse_coo_tensor(torch.tensor([[0, at]]), torch.tensor([1.0, value]), (4,))


def storage(value):
    return torch.FloatStorage([1.0, value])


def ordered(*pairs):
    return collections.OrderedDict(pairs)


def with_generator_state(value):
    state = torch.get_rng_state().clone()
    state[7] = value
    return state


# name: (value in A, value in B, expected message; None: any). The values are distinguished, with exit status 1.
DIFFER = {
    # Values that trainers save under a separate name.
    "rng_state": (with_generator_state(1), with_generator_state(2), "rng_state: element [7] is 1 in A, 2 in B (1 of "),
    "cuda_rng_state": ([with_generator_state(1)], [with_generator_state(2)], "cuda_rng_state.0: element [7] is 1 in A, 2 in B"),
    "rng": ({"python": python_random(1)}, {"python": python_random(2)}, "rng.python.1.1: "),
    "random": ({"numpy": numpy_random(1)}, {"numpy": numpy_random(2)}, "random.numpy.1: element 0 is "),
    "lr_scheduler": ({"last_epoch": 3, "_last_lr": [0.1]}, {"last_epoch": 3, "_last_lr": [0.2]}, "lr_scheduler._last_lr.0: 0.1 in A, 0.2 in B"),
    "scheduler": ({"best": 0.5, "mode": "min"}, {"best": 0.5, "mode": "max"}, 'scheduler.mode: "min" in A, "max" in B'),
    "scaler": ({"scale": 65536.0, "_growth_tracker": 3}, {"scale": 65536.0, "_growth_tracker": 4}, "scaler._growth_tracker: 3 in A, 4 in B"),
    "args": (argparse.Namespace(lr=0.1, name="x"), argparse.Namespace(lr=0.2, name="x"), "args.lr: 0.1 in A, 0.2 in B"),
    "callbacks": ({"ModelCheckpoint": {"best_model_path": "/a"}}, {"ModelCheckpoint": {"best_model_path": "/b"}}, 'callbacks.ModelCheckpoint.best_model_path: "/a" in A, "/b" in B'),
    "loops": ({"fit_loop": {"epoch": torch.tensor(1)}}, {"fit_loop": {"epoch": torch.tensor(2)}}, "loops.fit_loop.epoch: element [] is 1 in A, 2 in B"),
    # Numbers.
    "zero": (0.0, -0.0, "zero: 0.0 in A, -0.0 in B"),
    "type": (3, 3.0, "type: 3 in A, 3.0 in B"),
    "truth": (True, 1, "truth: True in A, 1 in B"),
    "none": (None, 0, "none: None in A, 0 in B"),
    "large": (2**70, 2**70 + 1, f"large: {2**70} in A, {2**70 + 1} in B"),
    "negative": (-(2**70), -(2**70) - 1, f"negative: {-2**70} in A, {-2**70 - 1} in B"),
    "unsigned": (2**64 - 1, 2**64, f"unsigned: {2**64 - 1} in A, {2**64} in B"),
    "beyond_doubles": (2**53, 2**53 + 1, f"beyond_doubles: {2**53} in A, {2**53 + 1} in B"),
    "last_place": (0.1, 0.1 + 2**-56, "last_place: 0.1 in A, 0.10000000000000002 in B"),
    "huge": (10**120, 10**120 + 1, f"huge: {10**120} in A, {10**120 + 1} in B"),
    "complex": (1 + 2j, 1 + 3j, "complex: (1.0+2.0j) in A, (1.0+3.0j) in B"),
    "decimal": (decimal.Decimal("0.1"), decimal.Decimal("0.2"), 'decimal: "0.1" in A, "0.2" in B'),
    "when": (datetime.timedelta(seconds=3), datetime.timedelta(seconds=4), "when.1: 3 in A, 4 in B"),
    # numpy's.
    "scalar": (numpy.float64(0.5), numpy.float64(0.25), "scalar: 0.5 (numpy f8) in A, 0.25 (numpy f8) in B"),
    "scalar_type": (numpy.float32(0.5), numpy.float64(0.5), "scalar_type: 0.5 (numpy f4) in A, 0.5 (numpy f8) in B"),
    "scalar_or_plain": (numpy.int64(2**60), 2**60, f"scalar_or_plain: {2**60} (numpy i8) in A, {2**60} in B"),
    "array": (numpy.arange(5.0), numpy.array([0.0, 1.0, 2.0, 3.5, 4.0]), "array: element 3 is 3 in A, 3.5 in B (1 of 5 differ)"),
    "array_order": (numpy.arange(3, dtype=">i4"), numpy.arange(1, 4, dtype=">i4"), "array_order: element 0 is 0 in A, 1 in B (3 of 3 differ)"),
    "array_zero": (numpy.zeros(2), -numpy.zeros(2), "array_zero: element 0 is 0 in A, -0 in B"),
    "array_shape": (numpy.zeros((2, 3)), numpy.zeros((3, 2)), "array_shape: an array of numpy f8 [2, 3] in A, an array of numpy f8 [3, 2] in B"),
    "array_type": (numpy.zeros(2, "f4"), numpy.zeros(2, "f8"), "array_type: an array of numpy f4 [2] in A"),
    "array_of_objects": (numpy.array([1, "x"], dtype=object), numpy.array([1, "y"], dtype=object), '"x" in A, "y" in B'),
    "array_of_complex": (numpy.array([1 + 1j]), numpy.array([1 + 2j]), "array_of_complex"),
    "array_of_texts": (numpy.array(["ab"]), numpy.array(["ac"]), "array_of_texts"),
    "array_of_records": (numpy.zeros(1, dtype=[("a", "i4")]), numpy.ones(1, dtype=[("a", "i4")]), "array_of_records"),
    "dtype": (numpy.dtype("f4"), numpy.dtype("f8"), 'dtype.0: "f4" in A, "f8" in B'),
    # Containers.
    "set": ({1, 2, 3}, {1, 2, 4}, "set: 3 is only in A's set"),
    "frozenset": (frozenset({"a"}), frozenset({"b"}), 'frozenset: "a" is only in A\'s set'),
    "frozen": ({1, 2}, frozenset({1, 2}), "frozen: a set of 2 in A, a frozenset of 2 in B"),
    "frozen_within": ({(1, frozenset())}, {(1, frozenset({2}))}, "frozen_within: a tuple of 2 is only in A's set"),
    "bytes_or_array": (b"ab", bytearray(b"ab"), "bytes_or_array: 2 bytes in A, a bytearray of 2 bytes in B"),
    "bytearray": (bytearray(b"a\xffb"), bytearray(b"a\xfeb"), "bytearray: a bytearray of 3 bytes in A"),
    "set_of_tuples": ({(1, 2)}, {(1, 3)}, "set_of_tuples: a tuple of 2 is only in A's set"),
    "set_of_less": ({1, 2}, {1}, "set_of_less: 2 is only in A's set"),
    "counter": (collections.Counter("aab"), collections.Counter("abb"), "counter.a: 2 in A, 1 in B"),
    "deque": (collections.deque([1, 2]), collections.deque([1, 3]), "deque.1: 2 in A, 3 in B"),
    "deque_size": (collections.deque([1], 3), collections.deque([1], 4), "deque_size.1: 3 in A, 4 in B"),
    "ordered": (ordered(("a", 1)), ordered(("a", 2)), "ordered.a: 1 in A, 2 in B"),
    "default": (collections.defaultdict(int, a=1), collections.defaultdict(int, a=2), "default.a: 1 in A, 2 in B"),
    "list": ([1, [2, 3]], [1, [2, 4]], "list.1.1: 3 in A, 4 in B"),
    "list_size": ([1, 2], [1, 2, 3], "list_size: a list of 2 in A, a list of 3 in B"),
    "list_or_tuple": ([1, 2], (1, 2), "list_or_tuple: a list of 2 in A, a tuple of 2 in B"),
    "long_list": (list(range(999)), list(range(5)) + list(range(6, 1000)), "long_list.5: 5 in A, 6 in B (994 of 999 items differ)"),
    "keys": ({(0, 1): 1}, {(0, 1): 2}, "keys.a tuple of 2: 1 in A, 2 in B"),
    "size": (torch.Size([2, 3]), torch.Size([2, 4]), "size.1: 3 in A, 4 in B"),
    # Texts and names.
    "text": ("abc", "abd", 'text: "abc" in A, "abd" in B'),
    "long_text": ("x" * 300 + "a", "x" * 300 + "b", "(they differ from byte 300 on)"),
    "bytes": (b"\x00\xff", b"\x00\xfe", "bytes: 2 bytes in A, 2 bytes in B (they differ from byte 1 on)"),
    "data_type": (torch.float32, torch.float64, "data_type: torch.float32 in A, torch.float64 in B"),
    "device": (torch.device("cpu"), torch.device("cuda:1"), 'device'),
    "path": (pathlib.PurePosixPath("/a"), pathlib.PurePosixPath("/b"), "path"),
    # Tensors that an audit does not read.
    "quantised": (quantised(), quantised(value=1.5), "quantised.0"),
    "quantised_scale": (quantised(), quantised(scale=0.2), "quantised_scale.4.1: 0.1 in A, 0.2 in B"),
    "sparse": (sparse(), sparse(value=4.0), "sparse.1.1: element [1] is 3 in A, 4 in B"),
    "sparse_index": (sparse(), sparse(at=2), "sparse_index.1.0: element [0, 1] is 1 in A, 2 in B"),
    "space": (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2), "space.a: 1 in A, 2 in B"),
    "storage": (storage(2.0), storage(3.0), "storage: element [6] is 0 in A, 64 in B (1 of 8 differ)"),
}


class Acting:
    def __reduce__(self):
        return os.getenv, ("x",)


class Stranger:
    """A class that trainers do not save."""

    def __init__(self, value):
        self.value = value


class Case(InAFolder):
    def save(self, name, value, **options):
        return super().save(value, name, **options)

    def diff(self, a, b, *flags):
        done = subprocess.run([PLUMB, "diff", str(a), str(b), "--expect-equal", *map(str, flags)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode == 0, "\nequal: " in "\n" + done.stdout, done.stdout + done.stderr)
        return done.returncode, done.stdout


class EachKind(Case):
    def files(self, name, a, b, **options):
        model = {"w.a": torch.ones(3)}
        return self.save("a.pt", {"model": model, name: a}, **options), self.save("b.pt", {"model": model, name: b}, **options)

    def test_differ(self):
        for name, (a, b, stated) in DIFFER.items():
            for protocol in (2, 4):
                with self.subTest(name, protocol=protocol):
                    status, out = self.diff(*self.files(name, a, b, pickle_protocol=protocol))
                    self.assertEqual(status, 1, out)
                    self.assertIn("first difference: " + name, out)
                    self.assertIn(stated, out)

    def test_the_same(self):
        for name, (a, b, _) in DIFFER.items():
            for value in (a, b):
                with self.subTest(name):
                    status, out = self.diff(*self.files(name, value, copy.deepcopy(value)))
                    self.assertEqual(status, 0, out)

    def test_of_unknown_classes(self):
        """Its parts are compared."""
        status, out = self.diff(*self.files("stranger", Stranger(1), Stranger(2)))
        self.assertIn("first difference: stranger.value: 1 in A, 2 in B", out)
        self.assertEqual(status, 1)
        self.assertEqual(self.diff(*self.files("stranger", Stranger(1), Stranger(1)))[0], 0)

    def test_a_name_that_acts(self):
        """The file still has a problem, even if everything else is equal."""
        status, out = self.diff(*self.files("acting", Acting(), Acting()))
        self.assertIn("not compared: the problems of the files", out)
        self.assertEqual(status, 2)

    def test_the_order_of_an_arrays_bytes(self):
        """Columns first or rows first: the values are the same, also for a resume."""
        rows = numpy.arange(24.0).reshape(2, 3, 4)
        for turned in (numpy.asfortranarray(rows), rows.transpose(2, 1, 0).copy().transpose(2, 1, 0)):
            self.assertEqual(self.diff(*self.files("array", rows, turned))[0], 0)
        other = numpy.asfortranarray(rows)
        other[1, 0, 2] = 9.5
        status, out = self.diff(*self.files("array", rows, other))
        self.assertEqual(status, 1)
        self.assertIn("array: element 14 is 14 in A, 9.5 in B (1 of 24 differ)", out)

    def rewritten(self, path, change):
        """Applies `change` to data.pkl."""
        out = self.folder / "changed.pt"
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
            for name in old.namelist():
                new.writestr(name, change(old.read(name)) if name.endswith("data.pkl") else old.read(name))
        return out

    def test_a_key_twice(self):
        """The last one counts, as for torch.load."""
        model = {"w.a": torch.ones(3)}
        twice = self.rewritten(self.save("a.pt", {"model": model, "seed": 1, "seeb": 2}), lambda pickled: pickled.replace(b"seeb", b"seed"))
        self.assertEqual(torch.load(twice)["seed"], 2)
        self.assertEqual(self.diff(twice, self.save("b.pt", {"model": model, "seed": 2}))[0], 0)
        status, out = self.diff(twice, self.save("b.pt", {"model": model, "seed": 1}))
        self.assertIn("first difference: seed: 2 in A, 1 in B", out)
        weights = self.rewritten(self.save("a.pt", {"model": {"w.a": torch.ones(3), "w.b": torch.zeros(3)}}), lambda pickled: pickled.replace(b"w.b", b"w.a"))
        self.assertEqual(self.diff(weights, self.save("b.pt", {"model": {"w.a": torch.zeros(3)}}))[0], 0)

    def test_a_view_that_is_negated(self):
        """torch 2 writes its bits and marks them: they are not its values, and the comparison stays open."""
        flags = b"}X\x03\x00\x00\x00neg\x88s"
        path = self.save("a.pt", {"model": {"w.a": torch.ones(3)}})
        changed = self.rewritten(path, lambda pickled: self.with_flags(pickled, flags))
        status, out = self.diff(changed, changed)
        self.assertEqual(status, 2, out)
        self.assertIn("not compared: ", out)
        for one, other in ((path, changed), (changed, path)):
            status, out = self.diff(one, other)
            self.assertEqual(status, 2, out)
            self.assertIn("not compared: w.a is a negated view, whose bits are not its values (f32)", out)
        # Facts that do not need its values are reported.
        for weight, stated in ((torch.ones(3).double(), "w.a: f32 in A, f64 in B"), (torch.ones(4), "w.a: shape [3] in A, [4] in B")):
            status, out = self.diff(changed, self.save("b.pt", {"model": {"w.a": weight}}))
            self.assertEqual(status, 1, out)
            self.assertIn(stated, out)
        # A complex tensor that is conjugated when it is read may equal one that is not.
        complex_path = self.save("c.pt", {"model": {"w.a": torch.tensor([1 + 2j])}})
        conjugated = self.rewritten(complex_path, lambda pickled: self.with_flags(pickled, b"}X\x04\x00\x00\x00conj\x88s"))
        self.assertEqual(self.diff(complex_path, conjugated)[0], 2)

    def with_flags(self, pickled, flags):
        """A seventh argument to the first tensor reconstruction, before the tuple of its arguments is closed."""
        end = pickled.index(b"R", pickled.index(b"_rebuild_tensor_v2") + pickled[pickled.index(b"_rebuild_tensor_v2"):].index(b"OrderedDict"))
        close = pickled.index(b"t", end)  # after OrderedDict() has been built
        return pickled[:close] + flags + pickled[close:]

    def test_complex_tensors(self):
        """Not read: the comparison stays open at every position."""
        one, two = torch.tensor([1 + 2j]), torch.tensor([1 + 3j])
        for key in ("model", "rng_state"):
            status, out = self.diff(*self.files(key if key != "model" else "state_dict", {"z.a": one}, {"z.a": two}))
            self.assertEqual(status, 2, out)
            self.assertIn("not compared: ", out)

    def test_of_other_protocols(self):
        """The written form of a value has no effect."""
        state = {"model": {"w.a": torch.ones(3)}, **{name: a for name, (a, _, _) in DIFFER.items() if name not in ("storage",)}}
        status, out = self.diff(self.save("a.pt", state, pickle_protocol=2), self.save("b.pt", state, pickle_protocol=4))
        self.assertEqual(status, 0, out)

    def test_an_optimizers_step(self):
        """The step of each parameter, not only the largest."""
        def state(*steps):
            return {"model": {"w.a": torch.ones(3)}, "optimizer": {"state": {i: {"step": s, "exp_avg": torch.ones(2)} for i, s in enumerate(steps)}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]}}

        for of in (int, lambda s: torch.tensor(float(s))):
            status, out = self.diff(self.save("a.pt", state(of(5), of(5))), self.save("b.pt", state(of(5), of(4))))
            self.assertEqual(status, 1)
            self.assertIn("first difference: optimizer.state.1.step: ", out)

    def test_one_that_is_shared(self):
        """Read and reported once, for any number of references."""
        x, y = torch.zeros(5), torch.ones(5)
        status, out = self.diff(self.save("a.pt", {"model": {"w.a": y}, "rng": [x] * 9}), self.save("b.pt", {"model": {"w.a": y}, "rng": [y.clone()] * 9}))
        self.assertEqual((status, out.count("rng.")), (1, 1))

    def test_ranks(self):
        """Every rank's values count; those of other ranks are not compared if the numbers of ranks differ."""
        def ranks(name, *states):
            for rank, state in enumerate(states):
                self.save(f"{name}/iter_0000007/mp_rank_{rank:02d}/model_optim_rng.pt", {"model": {"norm.weight": torch.ones(3)}, "iteration": 7, "rng_state": state})
            return self.folder / name

        a = ranks("a", 1, 2)
        self.assertEqual(self.diff(a, ranks("b", 1, 2))[0], 0)
        status, out = self.diff(a, ranks("c", 1, 3))
        self.assertEqual(status, 1)
        self.assertIn("rng_state: 2 in A, 3 in B (rank 1)", out)
        status, out = self.diff(a, ranks("d", 1))
        self.assertEqual(status, 0)
        self.assertIn("not compared: A's first rank was compared; its other ranks contain different values 1 value (rng_state)", out)


class Aside(Case):
    def test_what_one_side_alone_reports(self):
        model = {"w.a": torch.ones(3)}
        status, out = self.diff(self.save("a.pt", {"model": model, "epoch": 3, "rng_state": torch.ones(4), "note": None}), self.save("b.pt", model))
        self.assertEqual(status, 0)
        self.assertIn("not compared: only A contains 2 values (epoch, ...)", out)

    def test_what_is_lost_next_to_others(self):
        """A missing value whose neighbours both sides have is not a part that an export leaves out."""
        w = torch.ones(3)

        def state(**more):
            return {"model": {"w.a": w}, "optimizer": {"state": {0: {"exp_avg": w, "step": 5}}, "param_groups": [{"lr": 0.1, "eps": 1e-8, "params": [0]}]},
                    "scaler": {"scale": 2.0, "_growth_tracker": 3}, "seen": {5: True, 7: True}, "epoch": 3, **more}

        def without(section, key):
            value = state()
            del value[section][key]
            return value

        counted = collections.Counter
        for name, a, b, stated in (
            ("tracker", state(), without("scaler", "_growth_tracker"), "scaler._growth_tracker: only in A"),
            ("emptied", state(), state(scaler={}), "scaler.scale: only in A"),
            ("eps", state(), state(optimizer={**state()["optimizer"], "param_groups": [{"lr": 0.1, "params": [0]}]}), "optimizer.param_groups.0.eps: only in A"),
            ("no state", state(), state(optimizer={**state()["optimizer"], "state": {}}), "w.a/exp_avg: only in A"),
            ("seen", state(), state(seen={5: True, 9: True}), "seen.7: only in A"),
            ("counter", state(c=counted({3: 1, 6: 1})), state(c=counted({3: 1, 7: 1})), "c.6: only in A"),
            ("none", state(x={"a": None, "b": 1}), state(x={"b": 1}), "x.a: only in A"),
            ("empty", state(x={"a": {}, "b": 1}), state(x={"b": 1}), "x.a: only in A"),
            ("key", state(x={1: "a"}), state(x={"1": "a"}), "x.1: only in A"),
            ("key of a tensor", state(x={1: w}), state(x={"1": w}), "x.1: keys of two types with the same text"),
            ("the only tensor", state(x={"a": w}), state(x={}), "x.a: only in A"),
            ("none or a tensor", state(best=None), state(best=torch.tensor(0.7)), "best: None in A, a tensor in B"),
            ("number or a tensor", state(best=0.3), state(best=torch.tensor(0.3)), "best: 0.3 in A, a tensor in B"),
            ("tuple or list", (w,), [w], "(the file): a tuple of 1 in A, a list of 1 in B"),
            ("list or dict", state(x=[w]), state(x={0: w}), "x: a list of 1 in A, a dict of 1 in B"),
            ("both", state(a={"lr": 1}), state(b={"lr": 2}), "a.lr: only in A"),
            ("flat", {"args.lr": 1, "args.wd": 2, "w.a": w}, {"args.lr": 1, "w.a": w}, "args.wd: only in A"),
        ):
            with self.subTest(name):
                status, out = self.diff(self.save("a.pt", a), self.save("b.pt", b))
                self.assertIn("first difference: " + stated, out)
                self.assertEqual(status, 1)
                self.assertEqual(self.diff(self.folder / "b.pt", self.folder / "a.pt")[0], 1)
        # Whole parts that one side lacks are not compared, and neither are those that conversions leave out.
        status, out = self.diff(self.save("a.pt", state()), self.save("b.pt", {"model": {"w.a": w}}))
        self.assertEqual(status, 0, out)
        self.assertIn("not compared: only A contains ", out)
        names = self.folder / "names.toml"
        for text, expected in (('"w.*" = "v.*"', 0), ('"epoch" = ""', 1), ('"scaler._growth_tracker" = ""', 0)):
            names.write_text(f"[names]\n{text}\n")
            lost = without("scaler", "_growth_tracker")
            b = self.save("b.pt", {**lost, "model": {"v.a": w}} if "v." in text else lost)
            status, out = self.diff(self.folder / "a.pt", b, "--map", names)
            self.assertEqual(status, expected, out)

    def test_torchs_version(self):
        """A text with its own class."""
        version = torch.torch_version.TorchVersion
        paths = [self.save(f"{i}.pt", {"model": {"w.a": torch.ones(3)}, "torch": of}) for i, of in enumerate((version("1.13.1"), version("2.0"), "2.0"))]
        status, out = self.diff(paths[0], paths[1])
        self.assertEqual(status, 1)
        self.assertIn('first difference: torch: "1.13.1" in A, "2.0" in B', out)
        self.assertEqual(self.diff(paths[1], paths[2])[0], 0)
        self.assertEqual(audit(paths[0])[1]["inputs"][0]["problems"], [])

    def test_left_out(self):
        """Times, folders and arguments differ between two identical runs: a line of the map excludes them."""
        def state(seconds, folder, scale=1.0):
            return {"model": {"w.a": torch.ones(3), "extra.b": torch.ones(2) * seconds}, "time": {"started": seconds, "spent": 2 * seconds}, "args": argparse.Namespace(save=folder, lr=0.1), "scaler": {"scale": scale}}

        a, b = self.save("a.pt", state(1.5, "/a")), self.save("b.pt", state(2.5, "/b"))
        self.assertEqual(self.diff(a, b)[0], 1)
        names = self.folder / "names.toml"
        names.write_text('[names]\n"time.*" = ""\n"args" = ""\n"extra.*" = ""\n"unused*" = ""\n')
        status, out = self.diff(a, b, "--map", names)
        self.assertEqual(status, 0, out)
        for stated in ('not compared: by the map, "time.*" leaves out 2 names (time.started, ...)', 'not compared: by the map, "args" leaves out 1 name (args)',
                     '"extra.*" leaves out 1 name (extra.b)', 'note: of the map, "unused*" fits no name'):
            self.assertIn(stated, out)
        status, out = self.diff(a, self.save("c.pt", state(2.5, "/b", 2.0)), "--map", names)
        self.assertEqual(status, 1)
        self.assertIn("first difference: scaler.scale: 1.0 in A, 2.0 in B", out)
        # Without --expect-equal such tensors are also excluded.
        done = subprocess.run([PLUMB, "diff", a, b, "--map", names, "--format", "json"], capture_output=True, text=True)
        report = json.loads(done.stdout)
        self.assertEqual(([t["name"] for t in report["tensors"]], report["only_in_a"] if "only_in_a" in report else [], report["map_unfitted"]), (["w.a"], [], []))
        # Steps and rates under the names with which they are reported.
        one, two = (self.save(f"{step}.pt", {"model": {"w.a": torch.ones(2)}, "step": step}) for step in (4, 8))
        self.assertEqual(self.diff(one, two)[0], 1)
        names.write_text('[names]\n"step" = ""\n')
        self.assertEqual(self.diff(one, two, "--map", names)[0], 0)

    def test_a_resume_of_a_real_trainer(self):
        """All saved values are compared."""
        train(self.folder / "a", saves=2)
        train(self.folder / "b", saves=2)
        status, out = self.diff(self.folder / "a", self.folder / "b")
        self.assertEqual(status, 0)
        path = self.folder / "b/step-8/model.pt"
        checkpoint = torch.load(path)
        checkpoint["rng_state"][9] ^= 1
        torch.save(checkpoint, path)
        status, out = self.diff(self.folder / "a", self.folder / "b")
        self.assertEqual(status, 1)
        self.assertIn("first difference: rng_state: element [9] is", out)
        self.assertIn("1 differ, 24 equal", out)


if __name__ == "__main__":
    unittest.main()
