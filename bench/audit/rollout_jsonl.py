#!/usr/bin/env python3
"""Measures how fast `plumb audit` reads rollout records, and whether its memory grows with the file.

    bench/audit/rollout_jsonl.py PLUMB [--mib 64 256 1024] [--tokens 2000] [--digits 6 full]
        [--compressed] [--rules GLOB] [--keep DIR]

Writes native JSONL of each size (a loop over seeded sequences; steps of 64 sequences). Then measures in
one run for each size: `cat` to /dev/null, `wc -l`, `plumb audit` (processor seconds, MB/s, peak memory)
and Python's json over the first 64 MiB, with one tensor for each list. --digits full writes doubles
with 17 digits. --rules selects the rules that run; with a rule that never applies, only the reader is
measured. --compressed adds .gz and .zst files of the smallest size.
"""

import argparse
import array
import json
import os
import random
import resource
import shutil
import subprocess
import tempfile
import time

SEQUENCES_A_STEP = 64


def sequence(source, index, tokens, digits):
    rollout = [-source.expovariate(1.0) for _ in range(tokens)]
    train = [min(0.0, x + source.gauss(0, 0.01)) for x in rollout]
    entropy = [source.expovariate(1.0) for _ in range(tokens)]
    if digits != "full":
        rollout, train, entropy = ([round(x, int(digits)) for x in column]
                                   for column in (rollout, train, entropy))  # fmt: skip
    prompt = tokens // 8
    return {
        "step": 0,
        "sequence_id": f"sequence-{index}",
        "tokens": [source.randrange(150000) for _ in range(tokens)],
        "loss_mask": [0] * prompt + [1] * (tokens - prompt),
        "rollout_logprobs": rollout,
        "train_logprobs": train,
        "entropy": entropy,
        "weight_versions": [0] * tokens,
        "train_version": 1,
        "temperature": 1.0,
        "logprob_mode": "raw_logprobs",
        "worker": f"engine-{index % 4}",
    }


def write(path, size, tokens, digits):
    """Writes about `size` bytes; the content of every line comes from a few seeded ones."""
    source = random.Random(0)
    bodies = []
    for index in range(min(256, max(8, size // (40 * tokens)))):
        line = sequence(source, index, tokens, digits)
        del line["step"], line["sequence_id"]
        bodies.append(json.dumps(line)[1:])
    written, index = 0, 0
    with open(path, "w") as file:
        while written < size:
            head = f'{{"step": {index // SEQUENCES_A_STEP}, "sequence_id": "sequence-{index}", '
            written += file.write(head + bodies[index % len(bodies)] + "\n")
            index += 1
    return index


def timed(command):
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: exit status {code}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def python_json(path, most=64 << 20):
    start, read = time.process_time(), 0
    with open(path, "rb") as file:
        for line in file:
            record = json.loads(line)
            for key in ("rollout_logprobs", "train_logprobs", "entropy"):
                array.array("d", record[key])
            read += len(line)
            if read >= most:
                break
    return read, time.process_time() - start


def report(name, size, wall, cpu, memory=None):
    peak = f"{memory / 2**20:8.0f}" if memory else " " * 8
    print(f"{name:24} {size / 2**20:7.0f} {wall:8.2f} {cpu:8.2f} {size / cpu / 1e6:9.0f} {peak}",
          flush=True)  # fmt: skip


def audit(args, path, name, size):
    command = [args.plumb, "audit", "--quiet"]
    if args.rules:
        command += ["--rules", args.rules]
    wall, cpu, memory = timed(command + [path])
    report(name, size, wall, cpu, memory)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plumb")
    parser.add_argument("--mib", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--tokens", type=int, default=2000, help="a sequence")
    parser.add_argument("--digits", nargs="+", default=["6", "full"])
    parser.add_argument("--rules", help="rules that run; all of them without it")
    parser.add_argument("--compressed", action="store_true")
    parser.add_argument("--keep", help="write the files here and leave them")
    args = parser.parse_args()
    folder = args.keep or tempfile.mkdtemp()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(f"{'':24} {'MiB':>7} {'wall s':>8} {'cpu s':>8} {'MB/cpu s':>9} {'peak MiB':>8}")
    try:
        for digits in args.digits:
            for mib in args.mib:
                path = os.path.join(folder, f"rollouts-{digits}-{mib}.jsonl")
                sequences = write(path, mib << 20, args.tokens, digits)
                size = os.path.getsize(path)
                print(f"-- {digits} digits, {sequences} sequences of {args.tokens} tokens")
                report("cat", size, *timed(["cat", path])[:2])
                report("wc -l", size, *timed(["wc", "-l", path])[:2])
                audit(args, path, "plumb audit", size)
                read, seconds = python_json(path)
                report("python json (a part)", read, seconds, seconds)
                if args.compressed and mib == min(args.mib):
                    for tool, end in (("gzip", "gz"), ("zstd", "zst")):
                        subprocess.run([tool, "-qkf1", path], check=True)
                        audit(args, f"{path}.{end}", f"plumb audit .{end}", size)
                        os.remove(f"{path}.{end}")
                if not args.keep:
                    os.remove(path)
    finally:
        if not args.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
