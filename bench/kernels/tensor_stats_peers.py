"""Compares tensor statistics with a memcpy of the same bytes and with numpy's passes for part of the same figures.

    /usr/bin/python3 bench/kernels/tensor_stats_peers.py build/dev/bin/bench_tensor_stats

The three alternate in rounds, with one thread each, and CPU time counts. On a shared machine the best round shows what
the code can do, the median what it did. numpy has no bf16: its passes are over f32.
"""

import collections
import json
import os
import statistics
import subprocess
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy  # noqa: E402

ROUNDS = 9
COUNT = 1 << 24
SIZES = (1 << 16, COUNT)


def bench(program):
    """Returns bytes per second by name, from one run of the program."""
    out = subprocess.run(
        [program, "--benchmark_format=json", "--benchmark_min_time=0.05",
         f"--benchmark_filter=/({COUNT}|{SIZES[0]})$"],
        check=True, capture_output=True, text=True).stdout
    return {b["name"]: b["bytes_per_second"] for b in json.loads(out)["benchmarks"]}


PASSES = {
    "min": lambda x: x.min(),
    "max": lambda x: x.max(),
    "mean in f64": lambda x: x.mean(dtype=numpy.float64),
    "isnan": lambda x: numpy.count_nonzero(numpy.isnan(x)),
    "isinf": lambda x: numpy.count_nonzero(numpy.isinf(x)),
    "zeros": lambda x: numpy.count_nonzero(x),
    "squares in f64": lambda x: numpy.square(x, dtype=numpy.float64).sum(),
    "l1 in f64": lambda x: numpy.abs(x).sum(dtype=numpy.float64),
    "exponents": lambda x: numpy.bincount((x.view(numpy.uint32) >> 23) & 255, minlength=256),
}


def numpy_seconds(x):
    """Returns the CPU time of each pass."""
    spent = {}
    for name, take in PASSES.items():
        start = time.thread_time()
        take(x)
        spent[f"numpy, {name}"] = time.thread_time() - start
    spent["numpy, all of these"] = sum(spent.values())
    return spent


def main():
    program = sys.argv[1]
    values = numpy.random.default_rng(1).normal(0, 0.02, COUNT).astype(numpy.float32)
    rates = {n: collections.defaultdict(list) for n in SIZES}
    for _ in range(ROUNDS):
        for name, rate in bench(program).items():
            rates[int(name.rsplit("/", 1)[1])][name.rsplit("/", 1)[0]].append(rate)
        for n in SIZES:
            for name, seconds in numpy_seconds(values[:n]).items():
                rates[n][name].append(4 * n / seconds)
    for n, found in rates.items():
        best, middle = max(found["Memcpy"]), statistics.median(found["Memcpy"])
        print(f"{n} elements; GB/s, and of a memcpy: best of {ROUNDS} rounds, median")
        for name, each in found.items():
            high, mean = max(each), statistics.median(each)
            print(f"  {name:22} {high / 1e9:6.2f} {mean / 1e9:6.2f}   {high / best:6.3f} "
                  f"{mean / middle:6.3f}")


if __name__ == "__main__":
    main()
