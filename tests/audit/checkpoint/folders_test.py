"""Folders as users have them: what transformers writes, objects of all kinds next to the tensors, the remains of a
crash; and names that execute code."""

import argparse
import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import os
import pathlib
import pickle
import random
import subprocess
import sys
import types
import unittest
import uuid

sys.path.insert(0, os.path.dirname(__file__))
try:
    import numpy
    import torch
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import InAFolder, PLUMB, Tiny, audit, notes, problems, safetensors, serious

Point = collections.namedtuple("Point", "x y")


class Registry(collections.OrderedDict):
    pass


class Names(list):
    pass


class Kind(enum.Enum):
    FIRST = "first"

    def twice(self):
        return self.value * 2


class Outer:
    class Mode(enum.IntFlag):
        A = 1
        B = 2

    @dataclasses.dataclass
    class Settings:
        rate: float = 0.1


@dataclasses.dataclass
class Config:
    width: int = 3
    kind: Kind = Kind.FIRST
    inner: Outer.Settings = dataclasses.field(default_factory=Outer.Settings)


@dataclasses.dataclass
class TrainState:
    model: dict
    optimizer: dict
    step: int


def module(name):
    """An empty module, as if its package were installed."""
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        here = sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
        here.__path__ = []
        if i > 1:
            setattr(sys.modules[".".join(parts[: i - 1])], parts[i - 1], here)
    return sys.modules[name]


def foreign(where, made):
    """A class as if it were defined in another package."""
    made.__module__, made.__qualname__ = where, made.__name__
    setattr(module(where), made.__name__, made)
    return made


def training_arguments():
    strategy = foreign("transformers.trainer_utils", enum.Enum("IntervalStrategy", {"NO": "no", "STEPS": "steps"}))
    optimizers = foreign("transformers.training_args", enum.Enum("OptimizerNames", {"ADAMW_TORCH": "adamw_torch"}))
    distributed = foreign("accelerate.utils.dataclasses", enum.Enum("DistributedType", {"NO": "NO"}))
    arguments = foreign("transformers.training_args", type("TrainingArguments", (), {}))()
    accelerator = foreign("transformers.trainer_pt_utils", type("AcceleratorConfig", (), {}))()
    state = foreign("accelerate.state", type("PartialState", (), {}))()
    accelerator.split_batches = False
    state.__dict__.update(device=torch.device("cpu"), distributed_type=distributed.NO)
    arguments.__dict__.update(output_dir="out", eval_strategy=strategy.STEPS, optim=optimizers.ADAMW_TORCH, accelerator_config=accelerator,
                              distributed_state=state, logging_dir=pathlib.Path("runs"), save_steps=500)
    return arguments


def transformers_folder(out, seed=0, steps=(500, 1000, 1500)):
    """The output of Trainer(output_dir=out): folders of checkpoints, and the final model next to them."""
    torch.manual_seed(seed)
    model = Tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 1.0)
    for step in steps:
        for _ in range(4):
            tokens = torch.randint(0, 40, (8, 12))
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), ((tokens * 7 + 3) % 40).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        folder = out / f"checkpoint-{step}"
        trainer_files(folder, model, step)
        state = optimizer.state_dict()
        state["state"] = {k: {**v, "step": torch.tensor(float(step))} for k, v in state["state"].items()}
        torch.save(state, folder / "optimizer.pt")
        torch.save({**schedule.state_dict(), "last_epoch": step}, folder / "scheduler.pt")
        torch.save({"python": random.getstate(), "numpy": numpy.random.get_state(), "cpu": torch.get_rng_state()}, folder / "rng_state.pth")
    trainer_files(out, model, steps[-1])
    (out / "all_results.json").write_text(json.dumps({"epoch": 3.0, "train_loss": 2.0, "train_runtime": 12.3}))


def trainer_files(folder, model, step):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(safetensors(dict(model.state_dict()), {"format": "pt"}))
    torch.save(training_arguments(), folder / "training_args.bin")
    history = [{"epoch": i / 500, "learning_rate": 1e-3, "loss": 3 - i / 1000 + 0.01 * (i % 3), "grad_norm": 1.0, "step": i} for i in range(50, step + 1, 50)]
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": step / 500, "log_history": history}, indent=2))
    (folder / "config.json").write_text(json.dumps({"architectures": ["Tiny"]}))
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {"vocab": {"a": 0}}}))
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    (folder / "README.md").write_text("---\nlibrary_name: transformers\n---\n")


class Case(InAFolder):
    def diff(self, a, b, *flags):
        done = subprocess.run([PLUMB, "diff", str(a), str(b), *flags], capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout + done.stderr


class Transformers(Case):
    def test_an_output_folder(self):
        transformers_folder(self.folder)
        status, report = audit(self.folder)
        self.assertEqual((status, problems(report), serious(report)), (0, "", []))
        runs = {v["site"]["run"] for v in report["verdicts"]}
        # The final log contains those of all checkpoints; the final model is not a step of the series.
        self.assertEqual(runs, {"exp", "exp (without a step)", "trainer_state.json"})
        self.assertEqual({v["site"]["step_first"] for v in report["verdicts"] if v["rule"] == "precision/non-finite" and v["site"]["run"] == "exp"}, {500})
        self.assertEqual(notes(report).count("not read: an earlier copy of the log in"), 3)
        self.assertIn("not decoded: 1 call of transformers.training_args.TrainingArguments", notes(report))

    def test_one_checkpoint_is_one(self):
        transformers_folder(self.folder)
        one, two = (self.folder / f"checkpoint-{s}" for s in (500, 1000))
        status, report = audit(one)
        self.assertEqual((status, problems(report), serious(report)), (0, "", []))
        status, stated = self.diff(one, two)
        self.assertEqual(status, 0, stated)
        self.assertIn("embed.weight", stated)
        self.assertNotIn("runs", stated)
        self.assertEqual(self.diff(one, one, "--expect-equal")[0], 0)
        status, stated = self.diff(one, two, "--expect-equal")
        self.assertEqual(status, 1, stated)
        # A folder of steps stands for its newest step.
        self.assertEqual(self.diff(self.folder, self.folder / "checkpoint-1500", "--expect-equal")[0], 2)
        (self.folder / "trainer_state.json").unlink()
        self.assertEqual(self.diff(self.folder, self.folder / "checkpoint-1500", "--expect-equal")[0], 0)


VALUES = {
    "enum": lambda: Kind.FIRST, "a method of an enum": lambda: Kind.FIRST.twice, "a class": lambda: Kind, "flags": lambda: Outer.Mode.A | Outer.Mode.B,
    "a dataclass": Config, "a class within a class": Outer.Settings, "namedtuple": lambda: Point(1, 2.5), "ordered": lambda: Registry(a=1), "list": lambda: Names([1, 2]),
    "counter": lambda: collections.Counter("abca"), "deque": lambda: collections.deque([1, 2], maxlen=5), "defaultdict": lambda: collections.defaultdict(list, a=[1]),
    "path": lambda: pathlib.Path("/a/b"), "pure path": lambda: pathlib.PureWindowsPath("c:/a"), "time": lambda: datetime.datetime(2024, 2, 3, tzinfo=datetime.timezone.utc),
    "date": lambda: datetime.date(2024, 2, 3), "delta": lambda: datetime.timedelta(seconds=3.5), "decimal": lambda: decimal.Decimal("1.5"), "uuid": lambda: uuid.UUID(int=7),
    "random": lambda: random.Random(3), "legacy": lambda: numpy.random.RandomState(3), "generator": lambda: numpy.random.default_rng(3), "mt": lambda: numpy.random.Generator(numpy.random.MT19937(1)),
    "sequence": lambda: numpy.random.SeedSequence(5), "masked": lambda: numpy.ma.masked_array([1, 2], [0, 1]), "text array": lambda: numpy.array(["a", "bc"]), "objects": lambda: numpy.array([1, "a"], dtype=object),
    "record": lambda: numpy.zeros(2, dtype=[("a", "f4"), ("b", "i8")]), "time array": lambda: numpy.array(["2024-01-02"], dtype="datetime64[D]"), "namespace": lambda: argparse.Namespace(a=1),
    "simple": lambda: types.SimpleNamespace(a=Kind.FIRST), "partial": lambda: functools.partial(Config, width=4), "error": lambda: ValueError("lost"), "range": lambda: range(3), "slice": lambda: slice(1, 2),
    "complex": lambda: 1j, "regular expression": lambda: __import__("re").compile("a.*"), "logger": lambda: __import__("logging").getLogger("a"), "module": lambda: torch.nn.Linear(2, 2),
    "sampler": lambda: torch.utils.data.RandomSampler([1, 2, 3]), "distribution": lambda: torch.distributions.Normal(0.0, 1.0), "dtype": lambda: torch.bfloat16, "layout": lambda: torch.strided,
    "size": lambda: torch.Size([1, 2]), "sparse": lambda: torch.eye(3).to_sparse(), "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
}


class Objects(Case):
    """An unknown object is not opened. It is named and counted, and is not a reason for refusal."""

    def test_every_kind(self):
        for protocol in (2, 4):
            for name, make in VALUES.items():
                with self.subTest(name, protocol=protocol):
                    path = self.save({"model": Tiny().state_dict(), "extra": [make(), make()]}, pickle_protocol=protocol)
                    status, report = audit(path)
                    self.assertEqual((status, problems(report), serious(report)), (0, "", []))
                    self.assertGreaterEqual(report["inputs"][0]["records"], len(Tiny().state_dict()))

    def test_schedules_with_methods(self):
        model = Tiny()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for name, schedule in {"SWALR": torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05), "linear": torch.optim.swa_utils.SWALR(optimizer, 0.05, anneal_strategy="linear")}.items():
            for protocol in (2, 4):
                with self.subTest(name, protocol=protocol):
                    path = self.save({"model": model.state_dict(), "swa": schedule.state_dict(), "scheduler": schedule.state_dict()}, pickle_protocol=protocol)
                    status, report = audit(path)
                    self.assertEqual((status, problems(report)), (0, ""))

    def test_parts_in_containers_of_their_own_class(self):
        """A state_dict in a subclass of OrderedDict, a checkpoint that is a dataclass or a namedtuple: their tensors
        are found."""
        weights = {k: v.clone() for k, v in Tiny().state_dict().items()}
        weights["layers.1.weight"][3, 4] = float("nan")
        optimizer = {"state": {0: {"step": 3, "exp_avg": torch.ones(40, 16), "exp_avg_sq": torch.full((40, 16), float("inf"))}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
        made = {"a subclass": {"model": Registry(weights), "optimizer": Registry(optimizer), "step": 3}, "all of it": Registry(weights), "a dataclass": TrainState(weights, optimizer, 3),
                "a namedtuple": {"model": Point(weights, 3)}, "a subclass around it": Registry(model=weights)}
        for name, value in made.items():
            with self.subTest(name):
                status, report = audit(self.save(value))
                self.assertEqual((status, problems(report)), (1, ""))
                found = [f["site"]["layer"] for f in report["findings"] if f["rule"] == "precision/non-finite"]
                self.assertTrue(found and found[0].endswith("layers.1.weight"), found)
                # The two moments in addition to the weights.
                moments = 2 if "dataclass" in name or name == "a subclass" else 0
                self.assertEqual(report["inputs"][0]["records"], len(weights) + moments)


class Call:
    """Pickled as a call."""

    def __init__(self, function, *arguments):
        self.made = (function, arguments)

    def __call__(self):
        """The pickler requires a callable."""

    def __reduce__(self):
        return self.made


class Named:
    """A global with any name."""

    def __init__(self, where, name):
        self.name = f"{where}\n{name}\n"

    def __call__(self):
        """The pickler requires a callable."""


class NamingPickler(pickle._Pickler):
    def save(self, value, save_persistent_id=True):
        if isinstance(value, Named):
            return self.write(b"c" + value.name.encode())
        return super().save(value, save_persistent_id)


NAMING = types.ModuleType("naming")
NAMING.__dict__.update({k: v for k, v in vars(pickle).items() if not k.startswith("__")}, Pickler=NamingPickler)


class Acting(Case):
    """A name that could execute code is a problem, and nothing is called."""

    def test_names_that_act(self):
        def call(where, name, *arguments):
            return lambda: Call(Named(where, name), *arguments)

        acting = [
            call("os", "system", "true"), call("posix", "system", "true"), call("nt", "system", "dir"), call("subprocess", "Popen", ["true"]), call("builtins", "eval", "1"), call("builtins", "exec", "1"),
            call("__builtin__", "eval", "1"), call("builtins", "__import__", "os"), call("importlib", "import_module", "os"), call("runpy", "run_path", "x"), call("shutil", "rmtree", "x"), call("pickle", "loads", b""),
            call("webbrowser", "open", "x"), call("socket", "socket"), call("ctypes", "CDLL", "x"), call("pty", "spawn", "sh"), call("operator", "attrgetter", "a"), call("torch.hub", "load", "x", "y"), call("torch", "load", "x"),
            call("torch.serialization", "load", "x"), call("torch.storage", "_load_from_bytes", b""), call("torch.utils.cpp_extension", "load", "x"), call("numpy.testing._private.utils", "runstring", "1", {}),
            call("numpy", "load", "x"), call("numpy", "fromfile", "x"), call("pip", "main", []), call("cloudpickle.cloudpickle", "_make_function", 1), call("dill._dill", "_create_function", 1), call("torch.fx.graph_module", "reduce_graph_module", {}, ""),
            call("transformers.file_utils", "os.system", "true"), call("anything", "_os.system", "true"), call("collections", "_sys.exit", 1), call("collections", "namedtuple", "x", "y"), call("copyreg", "__newobj_ex__", 1, (), {}),
            lambda: Call(Call(Named("anything", "Factory")), 1), lambda: Call(functools.partial, Named("os", "system"), "true"), lambda: Call(getattr, Named("anything", "os"), "system"),
            lambda: Call(Call(getattr, Named("anything", "Thing"), "make"), 1), lambda: Call(getattr, Named("anything", "Thing"), "__globals__"), lambda: Call(getattr, Named("os", "Thing"), "x"),
        ]
        for number, make in enumerate(acting):
            with self.subTest(number):
                path = self.save({"model": Tiny().state_dict(), "extra": make()}, pickle_module=NAMING)
                status, report = audit(path)
                self.assertEqual(status, 2, make())
                self.assertIn("not decoded and not executed", problems(report))
                self.assertEqual(report["inputs"][0]["records"], len(Tiny().state_dict()))


class Leftovers(Case):
    def test_what_a_crash_left(self):
        whole = self.save({"model": Tiny().state_dict(), "step": 1}).read_bytes()
        for name in ("step-2/model.pt.tmp", "step-3.pt.tmp.4711", "tmp-checkpoint-4/model.pt", "step-5.pt.partial", "step-6.tmp/rank_0/model.pt"):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(whole[: len(whole) // 2])
        status, report = audit(self.folder)
        self.assertEqual((status, problems(report)), (0, ""))
        left = [i["path"] for i in report["inputs"] if "not finished" in str(i.get("notes"))]
        self.assertEqual(len(left), 5)
        # A file named on the command line must be read, and half a file with a final name is damage.
        self.assertEqual(audit(self.folder / "step-2/model.pt.tmp")[0], 2)
        (self.folder / "step-2/model.pt").write_bytes(whole[: len(whole) // 2])
        self.assertEqual(audit(self.folder)[0], 2)

    def test_names_that_only_look_so(self):
        for name in ("step-1/tmpfs.pt", "tmp-run/step-2/model.pt", "step-3/model.template.pt", "step-4/part.pt"):
            self.save({"model": Tiny().state_dict()}, name)
        self.assertNotIn("not finished", notes(audit(self.folder)[1]))

    def test_last_and_best_next_to_steps(self):
        """Copies of a step under other names: Lightning's last.ckpt, a trainer's best.pt."""
        torch.manual_seed(1)
        model = Tiny()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for step in (1, 2, 3, 4):
            optimizer.zero_grad()
            model(torch.randint(0, 40, (4, 6))).square().mean().backward()
            optimizer.step()
            kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "global_step": step}
            for name in [f"step-{step}.pt", "last.pt"] + ["best.pt"] * (step == 2):
                self.save(kept, name)
        status, report = audit(self.folder)
        self.assertEqual((status, problems(report), serious(report)), (0, "", []))


if __name__ == "__main__":
    unittest.main()
