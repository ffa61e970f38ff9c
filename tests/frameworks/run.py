#!/usr/bin/env python3
"""Runs the cases of files, and compares docs/frameworks.md with what they have shown.

  run.py                       the short files
  run.py --long                all files; needs hours of CPU time
  run.py --long --write combinations deepspeed    these files; puts what they have shown into the page
  run.py plain --case '.*/adamw' --keep DIR       one case; its records, reports and output stay in DIR

Any Python may start it: it continues in the environment that tests/frameworks/setup makes. Exit status 77: there is no such environment.
"""

import argparse
import gc
import importlib
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.setdefault("PLUMBLINE_BUILD_DIR", str(HERE.parents[1] / "build/dev")))
SKIPPED = 77
# Each file's process is forked from the process of the file that is named here, whose imports it shares.
FILES = {"plain": None, "batches": "plain", "lightning": "plain", "accelerate": "plain", "transformers": "accelerate", "trl": "transformers", "ranks": "transformers", "attach": "transformers"}
PAGE = HERE.parents[1] / "docs/frameworks.md"
LONG = ("scaled", "trl_kinds", "combinations", "resume", "parallel", "rare", "deepspeed", "megatron", "torchtitan", "jax", "loggers", "causality", "attach_deepspeed", "attach_megatron")  # --long, or PLUMB_LONG=1
ENVIRONMENT = {
    "PYTHONPATH": str(BUILD / "python"),
    "PLUMBLINE_LIBRARY": str(BUILD / "lib/libplumbline.so"),
    "HF_HUB_OFFLINE": "1",  # no model and no data come from elsewhere
    "OMP_NUM_THREADS": "1",
    "PLUMBLINE_BUDGET": "1",  # what a case shows does not depend on the machine's pace; cost.py measures at the default
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "",
}


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def enter_environment(every):
    """Starts this program again in the environment, unless it runs there."""
    if "PLUMB_FRAMEWORKS" in os.environ:
        return
    if not (BUILD / "lib/libplumbline_agent.so").exists():
        skip("the agent is not built")
    done = subprocess.run([HERE / "setup", *(["--all"] if every else [])], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == SKIPPED:
        skip("the package registry is out of reach")
    if done.returncode != 0:
        sys.exit("tests/frameworks/setup failed")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PLUMBLINE_", "PYTHON"))}
    os.environ.clear()
    os.environ.update(kept, **ENVIRONMENT, PLUMBLINE_BUILD_DIR=str(BUILD), PLUMB_FRAMEWORKS="1")
    python = f"{done.stdout.strip()}/bin/python"
    os.execv(python, [python, *sys.argv])


def run_file(name, names, options):
    """In a process of its own: imports the file, runs its cases, forks the files that share its imports. Exits with 1 if a case failed."""
    sys.path.insert(0, str(HERE))
    import harness

    failed, file = 0, f"on_{name}"
    module = importlib.import_module(file)
    gc.freeze()  # else each collection in a child, of which Trainer asks, goes through all that was imported
    if name in names:
        failed = harness.run_cases(file, options.case, options.keep, getattr(module, "FORK", True))
    sys.exit(1 if failed + start([n for n in names if FILES.get(n) == name], names, options) else 0)


def start(now, names, options):
    """A process for each file; returns how many failed."""
    failed = 0
    for name in now:
        process = multiprocessing.get_context("fork").Process(target=run_file, args=(name, names, options))
        process.start()
        process.join()
        failed += process.exitcode != 0
        if process.exitcode not in (0, 1):
            print(f"FAILED  {name}: its process ended with {process.exitcode}")
    return failed


def roots(names):
    return [n for n in names if FILES.get(n) not in names]


def finished(options):
    """Compares the page with what whole files have shown, or writes that into it. Returns how many of its cells differ."""
    sys.path.insert(0, str(HERE))
    import table

    if options.write:
        table.write(PAGE, options.keep, files=options.files)
    return table.compare(PAGE, options.keep, options.files)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", choices=[*FILES, *LONG, []])
    parser.add_argument("--long", action="store_true", help="also without PLUMB_LONG=1; without FILES, all of them")
    parser.add_argument("--case", default=".*", help="only cases whose FILE/CASE matches")
    parser.add_argument("--keep", metavar="DIR", help="keeps what the cases have written")
    parser.add_argument("--write", action="store_true", help="writes the rows of docs/frameworks.md, if no case failed")
    options = parser.parse_args()
    options.files = options.files or [*FILES, *(LONG if options.long else ())]
    if options.write and options.case != ".*":
        parser.error("--write needs all cases of the files")
    long = [name for name in options.files if name in LONG]
    if long and not options.long and os.environ.get("PLUMB_LONG") != "1":
        skip("only with --long or PLUMB_LONG=1")
    enter_environment(bool(long))
    with tempfile.TemporaryDirectory(prefix="plumb-frameworks-", ignore_cleanup_errors=True) as folder:
        options.keep = os.path.abspath(options.keep or folder)
        failed = start(roots(options.files), options.files, options)
        if not failed and options.case == ".*":
            failed = finished(options)
        sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
