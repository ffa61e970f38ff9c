#!/usr/bin/python3
"""Measures the cost of the probes in a training step, in one process.

Blocks of steps with probes and without alternate, so that heat, neighbours and the data meet both
alike. Each block with probes is paired with the block after it; the figure is the median over the
pairs of median(with) / median(without) - 1, with a bootstrap interval over the pairs.

  step_overhead.py --steps 400                    # probes stream to a plumbd of their own
  step_overhead.py --steps 400 --every 1          # measure each site at each step
  step_overhead.py --no-server --record           # record to disk only

The last line gives the same as JSON. Wall time of a shared machine is noisy; the CPU time of the
process counts the probes' own threads too and is steadier.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import plumbd

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TRAIN = REPOSITORY / "examples" / "moe_pytorch" / "train.py"
SETTLING = 1  # steps left out at the start of each block
RESAMPLES = 10_000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--block", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=40, help="steps left out at the start")
    parser.add_argument("--every", type=int, help="PLUMBLINE_EVERY: measure each n-th step")
    parser.add_argument("--no-server", dest="server", action="store_false")
    parser.add_argument("--record", action="store_true", help="also write a run record")
    parser.add_argument("--router", default="score-drop")
    parser.add_argument("--bin", default=os.environ.get("PLUMBLINE_BIN_DIR"),
                        help="folder of plumbd; default $PLUMBLINE_BIN_DIR")
    parser.add_argument("trainer", nargs="*", help="further options of train.py, after --")
    options = parser.parse_args()
    if options.server and not options.bin:
        parser.error("PLUMBLINE_BIN_DIR is not set; give --bin, the folder of plumbd")
    if not (options.server or options.record):
        parser.error("nothing would be observed: leave out --no-server or give --record")
    return options


def train(options, folder, address):
    log = folder / "log.jsonl"
    command = [sys.executable, str(TRAIN), "--router", options.router, "--probes", "alternate",
               "--block", str(options.block), "--steps", str(options.steps), "--log", str(log),
               "--quiet", *options.trainer]
    command += ["--server", address] if address else []
    command += ["--record", str(folder / "record")] if options.record else []
    environment = dict(os.environ)
    if options.every:
        environment["PLUMBLINE_EVERY"] = str(options.every)
    subprocess.run(command, check=True, env=environment)
    recorded = sum(f.stat().st_size for f in (folder / "record").rglob("*") if f.is_file())
    return [json.loads(line) for line in log.read_text().splitlines()], recorded


def pairs(lines, options, quantity):
    """Returns (with, without): medians of neighbouring blocks, without settling steps and warm-up."""
    blocks = {}
    for line in lines:
        number, place = divmod(line["step"], options.block)
        if line["step"] >= options.warm_up and place >= SETTLING:
            blocks.setdefault(number, []).append(line)
    medians = {n: (b[0]["probes"], statistics.median(line[quantity] for line in b))
               for n, b in blocks.items() if len(b) == options.block - SETTLING}
    return [(medians[n][1], medians[n + 1][1]) for n in sorted(medians)
            if medians[n][0] and n + 1 in medians]


def overhead(paired):
    """Returns the median ratio - 1 and its 95 % bootstrap interval."""
    ratios = [on / off - 1 for on, off in paired]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios)))
                     for _ in range(RESAMPLES))
    return {"median": statistics.median(ratios), "low": medians[int(0.025 * RESAMPLES)],
            "high": medians[int(0.975 * RESAMPLES)], "pairs": len(ratios),
            "without_ms": 1000 * statistics.median(off for _, off in paired)}


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="plumbline-bench-") as folder:
        folder = pathlib.Path(folder)
        with plumbd.running(options.server and options.bin, folder) as address:
            lines, recorded = train(options, folder, address)
    result = {"router": options.router, "every": options.every or "default",
              "to": "+".join(["server"] * options.server + ["record"] * options.record),
              "recorded_bytes": recorded}
    for quantity in ("seconds", "cpu_seconds"):
        paired = pairs(lines, options, quantity)
        if len(paired) < 5:
            raise SystemExit(f"{len(paired)} pairs of blocks; expected 5 or more: raise --steps")
        result[quantity] = overhead(paired)
        print("{:12s} {:+.2%}  [{:+.2%}, {:+.2%}]  {} pairs, {:.1f} ms a step without".format(
            {"seconds": "wall time", "cpu_seconds": "CPU time"}[quantity],
            *(result[quantity][k] for k in ("median", "low", "high", "pairs", "without_ms"))))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
