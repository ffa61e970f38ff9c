"""Shared parts of the tests of reports and of plumb mcp: a small run with our own probes, and the programs."""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples"))
import support  # noqa: E402

HOSTILE = "<script>alert(1)</script> \"'&\x1b[2J"
STEPS, ONSET = 60, 40

# A loss that becomes NaN at one step, which health/loss-non-finite reports. Runs in a separate process, like a trainer.
TRAINER = """
import sys, plumbline
name, record, server, steps, onset = sys.argv[1:6]
run = plumbline.init(run=name, record=record or None, server=server or None, strict=True)
for i in range(int(steps)):
    with run.step(i):
        run.scalar("loss", float("nan") if i == int(onset) else 4.0 - i / 100)
        run.scalar("lr", 1e-3)
run.finish()
"""


def train(name, record="", server="", onset=ONSET):
    done = subprocess.run([sys.executable, "-c", TRAINER, name, str(record), server, str(STEPS), str(onset)],
                          capture_output=True, text=True, timeout=support.PATIENCE)
    if done.returncode != 0:
        raise AssertionError(f"the trainer ended with {done.returncode}: {done.stdout}{done.stderr}")


def plumb(*arguments, cwd=None, **environment):
    """(exit status, standard output, standard error) of plumb."""
    done = subprocess.run([support.program("plumb"), *map(str, arguments)], capture_output=True, text=True,
                          encoding="utf-8", cwd=cwd, timeout=support.PATIENCE, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr
