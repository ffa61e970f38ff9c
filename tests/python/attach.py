"""Starts trainers plainly and under `plumb run`, for the attach_*_test.py."""

import json
import os
import pathlib
import subprocess
import sys

import trainer

BIN = pathlib.Path(trainer.BUILD) / "bin"
PLUMB = str(BIN / "plumb")
HOOK = str(pathlib.Path(trainer.BUILD) / "python/plumbline/_attach/path")
LONG = bool(os.environ.get("PLUMB_LONG"))
_LAUNCHERS = ("PLUMBLINE_", "SLURM_", "OMPI_", "TORCHELASTIC_", "WANDB_", "MLFLOW_")
READY = (BIN / "plumb").exists() and (pathlib.Path(trainer.BUILD) / "lib/libplumbline_agent.so").exists()


def environment(**more):
    """Returns the environment of an untouched trainer: no folder of this tree is on PYTHONPATH."""
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "PYTHONPATH") and (k == "PLUMBLINE_LIBRARY" or not k.startswith(_LAUNCHERS))}
    return {**env, "OMP_NUM_THREADS": "1", "PLUMBLINE_BUDGET": "1", "PLUMBLINE_EVERY": "1", **{k: v for k, v in more.items() if v is not None}}


def call(command, tmp_path, **more):
    return subprocess.run(command, cwd=tmp_path, env=environment(**more), capture_output=True, text=True, timeout=600)


def plain(script, tmp_path, python=sys.executable, **more):
    return call([python, str(script)], tmp_path, **more)


def attached(script, tmp_path, *options, python=sys.executable, record="rec", **more):
    return call([PLUMB, "run", *(["--record", record] if record else []), *options, "--", python, str(script)], tmp_path, **more)


def write(tmp_path, code, head="", name="train.py"):
    script = tmp_path / name
    script.write_text(head + code)
    return script


def of_trainer(stderr):
    """Returns the lines that are not Plumbline's: without those that begin with its name, and without the report at the end."""
    lines = stderr.splitlines()
    end = next((k for k, line in enumerate(lines) if line.startswith("plumb: run: the record in ")), None)
    # Lines of two ranks may be written into each other, which leaves empty ones.
    return [line for line in lines[:end] if line and not line.startswith(("plumbline: ", "plumb: "))]


def audit(tmp_path, record="rec"):
    done = subprocess.run([PLUMB, "audit", record, "--format", "json", "--quiet"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout)


def found(report, least=("warning", "error")):
    """Returns {rule: first step}."""
    first = {}
    for one in report["findings"]:
        if one["level"] in least:
            first[one["rule"]] = min(first.get(one["rule"], one["site"]["step_first"]), one["site"]["step_first"])
    return first
