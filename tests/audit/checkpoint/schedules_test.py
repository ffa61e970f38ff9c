"""Schedules of torch.optim as trainers save them: some contain themselves (a bound method), and the file is still read."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
try:
    import torch
    from torch.optim import lr_scheduler
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import PLUMB, Tiny, audit, notes, problems, serious


def schedules():
    """By name: a function from an optimizer to its schedule."""
    return {
        "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=1e-2, total_steps=100),
        "OneCycleLR, linear": lambda o: lr_scheduler.OneCycleLR(o, max_lr=1e-2, total_steps=100, anneal_strategy="linear"),
        "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=8),
        "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, Warmup(4)),
        "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=2),
        "SequentialLR": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.99)], milestones=[5]),
        "SequentialLR with OneCycleLR": lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o), lr_scheduler.OneCycleLR(o, max_lr=1e-2, total_steps=100)], milestones=[5]),
    }


class Warmup:
    """A function with a state, which LambdaLR saves."""

    def __init__(self, steps):
        self.steps = steps

    def __call__(self, i):
        return min(1.0, (i + 1) / self.steps)


def save_series(folder, make, steps=(4, 8, 12)):
    torch.manual_seed(3)
    model = Tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = make(optimizer)
    for step in range(1, steps[-1] + 1):
        tokens = torch.randint(0, 40, (8, 12))
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), ((tokens * 7 + 3) % 40).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step(loss) if isinstance(schedule, lr_scheduler.ReduceLROnPlateau) else schedule.step()
        if step in steps:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "lr_scheduler": schedule.state_dict(),
                        "step": step}, folder / f"step-{step}.pt")
    return model, optimizer, schedule


class Schedules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_every_schedule_is_read(self):
        for name, make in schedules().items():
            with self.subTest(name):
                folder = self.folder / name.replace(" ", "_")
                folder.mkdir()
                save_series(folder, make)
                status, report = audit(folder)
                self.assertEqual((status, problems(report), serious(report)), (0, "", []))
                tensors = len(Tiny().state_dict())
                self.assertTrue(all(i["records"] >= 3 * tensors for i in report["inputs"]), report["inputs"])
                self.assertIn("8 of 8 parameters named", notes(report))

    def test_what_holds_itself_is_named(self):
        save_series(self.folder, schedules()["OneCycleLR"], steps=(4,))
        _, report = audit(self.folder)
        stated = notes(report)
        self.assertIn("(in circles: 1 reference that leads back into it not followed)", stated)
        self.assertIn("not decoded: 1 call of torch.optim.lr_scheduler.OneCycleLR", stated)
        self.assertIn("of builtins.getattr", stated)

    def test_its_tensors_are_all_there(self):
        """Bit-identical to the same training with a schedule without a circle."""
        model, optimizer, _ = save_series(self.folder, schedules()["OneCycleLR"], steps=(4,))
        plain = self.folder / "plain.pt"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 4}, plain)
        done = subprocess.run([PLUMB, "diff", str(self.folder / "step-4.pt"), str(plain), "--expect-equal"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("equal", done.stdout)

    def test_what_hangs_below_a_method_is_no_state(self):
        """A correct resume: its OneCycleLR refers to another optimizer than the first one's."""
        one, two, three = (self.folder / f"{name}.pt" for name in ("one", "two", "three"))
        model = Tiny()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=99)
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**kept, "scheduler": schedule.state_dict()}, one)
        optimizer.param_groups[0]["weight_decay"] = 0.7  # of the optimizer to which the method refers
        torch.save({**kept, "scheduler": schedule.state_dict()}, two)
        torch.save({**kept, "scheduler": {**schedule.state_dict(), "total_steps": 98}}, three)
        for other, status, stated in ((two, 0, "equal: "), (three, 1, "first difference: scheduler.total_steps: 99 in A, 98 in B")):
            done = subprocess.run([PLUMB, "diff", str(one), str(other), "--expect-equal"], capture_output=True, text=True)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertIn(stated, done.stdout)
            self.assertIn("note: scheduler.anneal_func is torch.optim.lr_scheduler.OneCycleLR._annealing_cos, a method", done.stdout)

    def test_a_method_of_anything_else_is_a_problem(self):
        """getattr on an object that is not data: named, not run, and the rest is read."""

        class Module:
            def __reduce__(self):
                return __import__, ("os",)

        class Both:
            def __reduce__(self):
                return getattr, (Module(), "system")

        path = self.folder / "step-1.pt"
        torch.save({"model": Tiny().state_dict(), "extra": Both()}, path)
        status, report = audit(path)
        self.assertEqual(status, 2)
        self.assertIn("found 1 call of builtins.getattr (not decoded and not executed)", problems(report))
        self.assertEqual(report["inputs"][0]["records"], len(Tiny().state_dict()))


if __name__ == "__main__":
    unittest.main()
