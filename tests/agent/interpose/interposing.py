"""Builds the test programs of this folder, runs them plainly and under `plumb run`, and reads what was recorded."""

import json
import os
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).parent
BUILD = pathlib.Path(os.environ.get("PLUMBLINE_BUILD_DIR", HERE.parents[2] / "build/dev"))
PLUMB = str(BUILD / "bin/plumb")
LIBRARY = BUILD / "lib/libplumb_interpose.so"
READY = pathlib.Path(PLUMB).exists() and LIBRARY.exists()
CXX = os.environ.get("CXX", "c++")


def compile_one(folder, name, sources, *options):
    target = folder / name
    subprocess.run([CXX, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", *[str(HERE / s) for s in sources], "-o", str(target), *options], check=True)
    return target


def build(folder):
    """Returns {name: path} of all programs and libraries."""
    shared = ("-shared", "-fPIC")
    here = ("-L", str(folder), f"-Wl,-rpath,{folder}")
    made = {}
    for name, source, *more in (
        ("libnccl.so.2", "stub_nccl.cc"),
        ("libcublas.so.13", "stub_cublas.cc"),
        ("libblas.so.3", "stub_blas.cc", "-DWEIGHT=1"),
        ("libopenblas.so.0", "stub_blas.cc", "-DWEIGHT=10"),
    ):  # fmt: skip
        made[name] = compile_one(folder, name, [source], *shared, *more, f"-Wl,-soname,{name}")
    made["plugin1.so"] = compile_one(folder, "plugin1.so", ["plugin.cc"], *shared, *here, "-l:libblas.so.3")
    made["plugin10.so"] = compile_one(folder, "plugin10.so", ["plugin.cc"], *shared, *here, "-l:libopenblas.so.0")
    libraries = (*here, "-l:libnccl.so.2", "-l:libcublas.so.13", "-ldl", "-pthread")
    made["trainer"] = compile_one(folder, "trainer", ["trainer.cc"], *libraries)
    made["static_trainer"] = compile_one(folder, "static_trainer", ["trainer.cc", "stub_nccl.cc", "stub_cublas.cc"], "-static", "-pthread")
    made["inner_trainer"] = compile_one(folder, "inner_trainer", ["trainer.cc", "stub_nccl.cc", "stub_cublas.cc"], "-ldl", "-pthread")
    made["caller"] = compile_one(folder, "caller", ["caller.cc"], *here, "-l:libblas.so.3", "-ldl", "-pthread")
    made["no_plt_caller"] = compile_one(folder, "no_plt_caller", ["caller.cc"], "-fno-plt", *here, "-l:libblas.so.3", "-ldl", "-pthread")
    made["late_caller"] = compile_one(folder, "late_caller", ["late_caller.cc"], "-ldl")
    made["user"] = compile_one(folder, "user", ["user.cc"], "-ldl")
    return made


def environment(**more):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("PLUMBLINE_", "SLURM_", "OMPI_")) and k not in ("RANK", "WORLD_SIZE", "LD_PRELOAD", "PYTHONPATH")}
    return {**keep, **{k: str(v) for k, v in more.items() if v is not None}}


def plain(command, cwd, **more):
    return subprocess.run([str(c) for c in command], cwd=cwd, env=environment(**more), capture_output=True, text=True, timeout=300)


def watched(command, cwd, *options, **more):
    return plain([PLUMB, "run", "--record", "rec", *options, "--", *command], cwd, **more)


def counts(done):
    """Returns {function: calls} of the line that plumb run prints."""
    line = re.search(r"^plumb: run: calls seen: (.*)$", done.stderr, re.M)
    return {} if line is None else {name: int(n.replace(",", "")) for name, n in re.findall(r"(\w+) ([\d,]*\d)", line[1])}


def report(cwd):
    done = subprocess.run([PLUMB, "audit", "rec", "--format", "json", "--quiet"], cwd=cwd, capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout)


def findings(cwd):
    """Returns {(rule, cause)} of all findings, notes too."""
    return {(one["rule"], one["cause"]["id"]) for one in report(cwd)["findings"]}


def findings_of_twin(made, cwd, world):
    """Returns the findings of the trainer that sums in f32 over as many ranks."""
    cwd.mkdir()
    watched([made["trainer"], world, 3, "none"], cwd, TEST_LOCAL_RANKS=2)
    return findings(cwd)
