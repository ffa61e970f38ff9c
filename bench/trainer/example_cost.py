#!/usr/bin/python3
"""Measures the cost of the two lines in the smallest example (examples/watch_pytorch), by attribution, as watch_cost.py does.

  example_cost.py               # 300 steps as they are, a plain run and a watched one in turns
  example_cost.py --pause 0.05  # steps filled up to 50 ms
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from watch_cost import Hooks, threads

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "watch_pytorch"))
import train as example  # noqa: E402


def one(options, record):
    """Returns (median seconds per step, our share of the trainer's thread, of our threads) of the steps after the warm-up."""
    hooks = Hooks()
    arguments = ["--steps", str(options.steps + options.warm_up)]
    if record != "none":
        hooks.everywhere()
        arguments += ["--record", record]
    example.torch.set_num_threads(1)
    times, spent, ours, start = [], 0, 0, time.monotonic()
    began = ended = start
    for step, _ in enumerate(example.train(example.arguments(arguments))):
        time.sleep(max(0.0, options.pause - (time.monotonic() - start)))
        if step == options.warm_up:
            began, spent, ours = time.monotonic(), hooks.spent, threads()
        ended = time.monotonic()
        times.append(ended - start)
        start = ended
        if step == options.steps + options.warm_up - 1:  # before finish()
            spent, ours = hooks.spent - spent, threads() - ours
    wall = ended - began
    return statistics.median(times[options.warm_up :]), spent / 1e9 / wall, ours / 1e9 / wall


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--warm-up", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0.0, help="the least seconds of a step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # the folder of a record, or "none": the part of one process
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options, options.one)))
        return
    rounds = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            both = [subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", record], capture_output=True, text=True, check=True)
                    for record in ("none", folder)]  # fmt: skip
        rounds.append([json.loads(done.stdout) for done in both])
    plain, watched = (statistics.median(r[which][0] for r in rounds) for which in (0, 1))
    hooks, ours = (statistics.median(r[1][which] for r in rounds) for which in (1, 2))
    print(f"the example, a step of {plain * 1e3:.1f} ms: {100 * hooks:.2f} % of the trainer's thread, "
          f"{100 * ours:.2f} % of a core for our threads; median step {100 * (watched / plain - 1):+.1f} %")  # fmt: skip
    print(json.dumps({"step_ms": plain * 1e3, "hooks": hooks, "threads": ours, "wall": watched / plain - 1}))


if __name__ == "__main__":
    main()
