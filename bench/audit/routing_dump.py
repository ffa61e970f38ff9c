#!/usr/bin/env python3
"""Measures the time of `plumb audit` for a routing dump, and whether it is linear in the tokens.

    bench/audit/routing_dump.py PLUMB [--experts 64] [--top-k 2 ...] [--repeat 3] [--unrecorded]
        [--smallest 16] [--largest 20] [--pool-rows 8192] [--routers fifo score random dropless]

For T = 2^16 .. 2^20 tokens: the medians of wall and processor time over several runs of the whole
program, the time to read the same file into memory, and the processor time per token. Choices above
the capacity are refused in order of arrival, by score or at random; --pool-rows 0 makes all tokens one
pool; --unrecorded leaves capacity and pools out of the dump. For one core, prefix `taskset -c 0`.
Needs numpy.
"""

import argparse
import itertools
import json
import os
import statistics
import struct
import subprocess
import tempfile
import time

import numpy as np

DTYPES = {"float32": "F32", "int64": "I64", "bool": "BOOL"}
SEQUENCE_ROWS = 2048


def write_safetensors(path, tensors, metadata):
    header, offset = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        header[name] = {"dtype": DTYPES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [offset, end]}  # fmt: skip
        offset = end
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def kept(experts, priority, capacity):
    """Keeps, from one pool's choices [rows, k], the `capacity` with the lowest priority at each expert."""
    flat = experts.ravel()
    order = np.lexsort((priority.ravel(), flat))
    ordered = flat[order]
    place = np.arange(flat.size) - np.searchsorted(ordered, ordered)
    keep = np.zeros(flat.size, bool)
    keep[order] = place < capacity
    return keep.reshape(experts.shape)


def make_dump(path, tokens, experts, k, router, pool_rows, recorded=True):
    random = np.random.default_rng(0)
    favour = 0.3 * random.standard_normal(experts, dtype=np.float32)
    logits = random.standard_normal((tokens, experts), dtype=np.float32) + favour
    chosen = np.argpartition(-logits, k, 1)[:, :k]
    score = np.take_along_axis(logits, chosen, 1)
    rank = np.argsort(-score, 1)
    chosen, score = np.take_along_axis(chosen, rank, 1), np.take_along_axis(score, rank, 1)
    pool_rows = pool_rows or tokens
    capacity = pool_rows * k // experts
    keep = np.ones((tokens, k), bool)
    for first in range(0, tokens, pool_rows):
        pool = slice(first, first + pool_rows)
        priority = {"score": -score[pool], "random": random.random(chosen[pool].size),
                    "fifo": np.arange(chosen[pool].size)}  # fmt: skip
        if router != "dropless":
            keep[pool] = kept(chosen[pool], priority[router], capacity)
    row = np.arange(tokens)
    tensors = {
        "router_logits": logits, "topk_indices": chosen.astype(np.int64), "keep_mask": keep,
        "sequence_id": row // SEQUENCE_ROWS, "position": row % SEQUENCE_ROWS,
    }  # fmt: skip
    metadata = {"kind": "routing", "top_k": str(k), "layer": "layers.0",
                "score_function": "softmax"}  # fmt: skip
    if recorded:
        tensors["pool_id"] = row // pool_rows
        metadata["capacity"] = "none" if router == "dropless" else str(capacity)
    write_safetensors(path, tensors, metadata)


def audit(plumb, path):
    start = time.monotonic()
    process = subprocess.Popen([plumb, "audit", "--quiet", path], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 1):
        raise SystemExit(f"{plumb} audit {path}: exit status {code}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime


def read(path):
    start = time.monotonic()
    with open(path, "rb") as file:
        bytearray(file.read())  # and one copy of it
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plumb")
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--top-k", type=int, nargs="+", default=[2])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--unrecorded", action="store_true", help="no capacity, no pool_id")
    parser.add_argument("--smallest", type=int, default=16, help="log2 of the fewest tokens")
    parser.add_argument("--largest", type=int, default=20, help="log2 of the most tokens")
    parser.add_argument("--pool-rows", type=int, default=8192, help="tokens a pool; 0: all")
    parser.add_argument("--routers", nargs="+", default=["score", "fifo"],
                        choices=["score", "fifo", "random", "dropless"])  # fmt: skip
    args = parser.parse_args()
    print(f"{'router':9} {'k':>2} {'tokens':>8} {'MiB':>5} {'wall s':>7} {'cpu s':>7} {'read s':>7} "
          f"{'cpu ns/token':>13}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for router, k in itertools.product(args.routers, args.top_k):
            for power in range(args.smallest, args.largest + 1):
                path = os.path.join(folder, "dump.safetensors")
                tokens = 1 << power
                make_dump(path, tokens, args.experts, k, router, args.pool_rows,
                          not args.unrecorded)  # fmt: skip
                runs = [audit(args.plumb, path) for _ in range(args.repeat)]
                wall = statistics.median(r[0] for r in runs)
                cpu = statistics.median(r[1] for r in runs)
                reading = min(read(path) for _ in range(args.repeat))
                print(f"{router:9} {k:2} {tokens:8} "
                      f"{os.path.getsize(path) >> 20:5} {wall:7.3f} {cpu:7.3f} {reading:7.3f} "
                      f"{cpu / tokens * 1e9:13.0f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
