"""Measures the cost of Plumbline in a trainer's process: time, memory and threads at each stage.

  measure.py NAME=PACKAGE_FOLDER...
  measure.py build=build/dev/python package=dist/tree/prefix/lib/python3/dist-packages

Each stage is reached in a process of its own; medians of --repeat processes, with the least and the
most.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

STAGES = ("python", "imported", "opened", "first due call", "second due call", "finished")
# Represents a trainer's process; prints one JSON object per stage.
PROCESS = """
import json, os, sys, time
def state(stage, seconds):
    text = open("/proc/self/smaps_rollup").read().split()
    maps = open("/proc/self/maps").read()
    status = open("/proc/self/status").read()
    print(json.dumps({"stage": stage, "ms": seconds * 1e3, "pss": int(text[text.index("Pss:") + 1]),
                      "rss": int(text[text.index("Rss:") + 1]),
                      "threads": int(status.split("Threads:")[1].split()[0]),
                      "agent": int("libplumbline_agent" in maps),
                      "libraries": len({line.split()[-1] for line in maps.splitlines() if ".so" in line})}))
def timed(stage, call):
    began = time.perf_counter()
    result = call()
    state(stage, time.perf_counter() - began)
    return result
def load():
    import plumbline
    return plumbline
def due(n):
    with run.step(n):
        run.observe_routing("a", [[0.5, 0.25], [0.1, 0.2]], topk_indices=[[0], [1]], top_k=1)
import array, ctypes, threading
state("python", 0)
plumbline = timed("imported", load)
run = timed("opened", lambda: plumbline.init(run="paid", record=sys.argv[1], every=1))
timed("first due call", lambda: due(0))
timed("second due call", lambda: due(1))
timed("finished", lambda: run.finish(30))
"""


def one(package):
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("PLUMBLINE_", "PYTHON", "LD_"))
    }
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", PROCESS, f"{folder}/record"],
            capture_output=True,
            text=True,
            check=True,
            env={**environment, "PYTHONPATH": os.path.abspath(package)},
        )
    return {row["stage"]: row for row in map(json.loads, done.stdout.splitlines())}


def print_stages(name, rows):
    print(
        f"\n{name}: {rows[0]['first due call']['libraries']} shared objects with the agent, "
        f"{rows[0]['opened']['libraries']} before"
    )
    print(
        "| stage | ms (median; least to most) | resident MB | of its own MB | threads | agent mapped |\n|---|---|---|---|---|---|"
    )
    for stage in STAGES:
        of = {
            key: [row[stage][key] for row in rows]
            for key in ("ms", "rss", "pss", "threads", "agent")
        }
        median = {key: statistics.median(values) for key, values in of.items()}
        print(
            f"| {stage} | {median['ms']:.1f}; {min(of['ms']):.1f} to {max(of['ms']):.1f} | {median['rss'] / 1024:.1f} | "
            f"{median['pss'] / 1024:.1f} | {median['threads']:.0f} | {'yes' if max(of['agent']) else 'no'} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--repeat", type=int, default=15)
    requested = parser.parse_args()
    trees = dict(tree.split("=", 1) for tree in requested.trees)
    for package in trees.values():
        one(package)  # loads the files into memory, and compiles them
    rows = {name: [] for name in trees}
    for _ in range(
        requested.repeat
    ):  # alternate, so that all meet the same load of the machine
        for name, package in trees.items():
            rows[name].append(one(package))
    for name in trees:
        print_stages(name, rows[name])


if __name__ == "__main__":
    main()
