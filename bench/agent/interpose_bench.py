#!/usr/bin/python3
"""Measures what libplumb_interpose.so adds to a call of BLAS, NCCL and cuBLAS, next to the bare call.

  interpose_bench.py              # medians of 15 pairs, alternating
  interpose_bench.py --check 25   # exit status 1 if a median is more than 25 ns above the bare call

The library that is called does nothing, so a call is as cheap as a call of a shared library can be."""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("PLUMBLINE_BUILD_DIR", HERE.parents[1] / "build/dev"))


def build(folder):
    source = str(HERE / "interpose_bench.cc")
    common = [os.environ.get("CXX", "c++"), "-std=c++20", "-O2", source]
    subprocess.run([*common, "-DLIBRARY", "-shared", "-fPIC", "-o", f"{folder}/libnothing.so"], check=True)
    subprocess.run([*common, "-o", f"{folder}/caller", "-L", folder, f"-Wl,-rpath,{folder}", "-lnothing"], check=True)
    return f"{folder}/caller"


def measure(caller, tables):
    more = {"LD_PRELOAD": str(BUILD / "lib/libplumb_interpose.so"), "PLUMBLINE_CALLS": tables} if tables else {}
    lines = subprocess.run([caller], env={**os.environ, **more}, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: float(ns) for name, ns in (line.split() for line in lines)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--check", type=float, help="the most nanoseconds that a call may cost more")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        caller = build(folder)
        pairs = [(measure(caller, None), measure(caller, folder)) for _ in range(options.pairs)]
    failed = False
    for name in pairs[0][0]:
        bare = statistics.median(p[0][name] for p in pairs)
        added = statistics.median(p[1][name] - p[0][name] for p in pairs)
        ratio = statistics.median(p[1][name] / p[0][name] for p in pairs)
        print(f"{name:15} bare {bare:6.2f} ns, watched +{added:6.2f} ns, ratio {ratio:.2f}")
        failed |= options.check is not None and not added <= options.check
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
