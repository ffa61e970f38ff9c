#!/usr/bin/python3
"""Attributes the probes' CPU time in the example: to the trainer's own thread, and to ours by name.

  attribution.py --router score-drop --steps 300 --layers 2 --server 127.0.0.1:7433

Takes the options of train.py. CPU time, not wall time, so that a busy machine disturbs it less;
still, run it on an idle one: cold caches and preemption make every wake-up dearer.
"""

import glob
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "moe_pytorch"))

import probes  # noqa: E402
import train  # noqa: E402


class Timed(probes.Probes):
    """Probes that record the thread CPU time of each observation, and of our threads at the end."""

    calls, threads = [], {}

    def routing(self, *call):
        began = time.thread_time_ns()
        super().routing(*call)
        self.calls.append(time.thread_time_ns() - began)

    def finish(self):
        for task in glob.glob("/proc/self/task/*"):
            name = pathlib.Path(task, "comm").read_text().strip()
            spent = int(pathlib.Path(task, "schedstat").read_text().split()[0])
            self.threads[name] = self.threads.get(name, 0) + spent
        super().finish()


def main(argv):
    options = train.arguments([*argv, "--quiet"])
    train.Probes = Timed
    began = time.monotonic()
    train.train(options)
    wall = time.monotonic() - began
    main_thread = Timed.threads.pop("python3", 0)
    print(f"{options.steps} steps in {wall:.1f} s, {main_thread / 1e6 / options.steps:.1f} ms CPU a "
          "step in the trainer's threads")
    print(f"observe_routing: median {statistics.median(Timed.calls) / 1e3:.0f} us, "
          f"{sum(Timed.calls) / 1e6 / options.steps:.3f} ms a step")
    for name, spent in sorted(Timed.threads.items(), key=lambda item: -item[1]):
        print(f"{name:16s} {spent / 1e6 / options.steps:.3f} ms a step, "
              f"{spent / 1e7 / wall:.2f} % of a core")


if __name__ == "__main__":
    main(sys.argv[1:])
