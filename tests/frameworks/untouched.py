"""Cases of other files without their call of run.watch: the hook of `plumb run` watches them, from the second step on."""

import os
import pathlib
import sys

import harness

HOOK = str(pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"]) / "python/plumbline/_attach/path")


def attach():
    """Does in this process, which has imported torch, what `plumb run` does at the start of one."""
    sys.path.insert(0, HOOK)
    import plumbline_attach

    sys.path.remove(HOOK)
    os.environ.update(PLUMBLINE_RECORD=os.path.abspath("record"), PLUMBLINE_EVERY="1")
    plumbline_attach.install()


def finish():
    """Ends the hook's run."""
    from plumbline._attach import attached

    run = attached._state.run
    if run is not None and not run.finish():
        raise harness.Wrong("run.finish() is false")
    if run is None and os.environ.get("PLUMBLINE_DISABLE") != "1":
        raise harness.Wrong("nothing is watched")


def _without_first(**series):
    """harness.expect for a run whose first step is not observed."""
    later = {name: {k: v for k, v in enumerate(values) if k} if isinstance(values, (list, tuple)) else values for name, values in series.items()}
    harness.expect(**later)


def untouched(file, *names):
    """Adds the cases `names` of on_FILE.py to those of the calling file."""
    module = sys.modules[f"on_{file}"]
    caller = sys._getframe(1).f_globals["__name__"]
    for name in names:
        one = next(c for c in harness.CASES[module.__name__] if c.name == name)
        harness.CASES.setdefault(caller, []).append(_untouched(module, one, f"{file}_{name}"))


def _untouched(module, one, name):
    def train(_):
        import plumbline

        attach()
        module.expect = _without_first
        result = one.train(plumbline.NoRun())
        finish()
        return result

    train.__name__ = name
    finds = {rule: 1 if step == 0 else step for rule, step in one.finds.items()}
    steps = one.steps and one.steps - 1
    return harness.Case(train, steps=steps, finds=finds, level=one.level, others=one.others, opens=False)
