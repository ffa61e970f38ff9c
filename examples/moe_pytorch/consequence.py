#!/usr/bin/python3
"""Measures how much a leaking router gains: trains with each router, then runs the weights with causal routing too.

  consequence.py
  consequence.py --routers dropless score-drop --steps 1000 --seed 2 --json result.json

Same seeds, same initial weights, same text in the same order for every router. Each model is then run
on held-out text under the routing that it learned with and under both causal ones (dropless; first come
first served), and the loss of each token compared. Unknown options go to train.py: --dim, --batch, ...
"""

import argparse
import json
import sys
import time

import torch
from torch.nn import functional as F

import data
import routers
import train
from probes import import_plumbline

SMALL = ["--layers", "2", "--dim", "64", "--batch", "4", "--seq", "64", "--steps", "300",
         "--probes", "off", "--workers", "0"]
HELD_OUT = 10         # every tenth section of the manual is not trained on
EVALUATION = 500_000  # added to the seed, so that draws differ from training


def arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], allow_abbrev=False,  # --batch is an option of train.py
        epilog="Unknown options go to train.py; its defaults here: " + " ".join(SMALL))
    parser.add_argument("--routers", nargs="+", choices=routers.POLICIES, metavar="ROUTER",
                        default=list(routers.POLICIES), help="to train with; all of train.py's")
    parser.add_argument("--batches", type=int, default=60, help="of held-out text")
    parser.add_argument("--level", type=float, default=0.99, help="of the intervals")
    parser.add_argument("--json", metavar="FILE", help="the table's numbers, by position too")
    own, rest = parser.parse_known_args(argv)
    if own.batches < 1:
        parser.error(f"--batches is {own.batches}; expected >= 1")
    if not 0 < own.level < 1:
        parser.error(f"--level is {own.level}; expected between 0 and 1")
    for option in rest:
        if option.split("=")[0] in ("--router", "--launch"):
            parser.error(f"{option} is not for here; expected --routers, one rank")
    return own, [train.arguments([*SMALL, *rest, "--router", name]) for name in own.routers]


def trained(options, documents):
    """Returns the model after its training, and the loss of its last steps."""
    trainer = train.Trainer(options, documents)
    losses = [record["loss"] for record in trainer.train()]
    return trainer.model, sum(losses[-20:]) / len(losses[-20:])


@torch.no_grad()
def losses(model, batch, policy):
    """Returns [B, S] cross-entropy of each token; 0 if there is no target."""
    with model.routed_by(policy):
        logits, _ = model(batch.tokens, batch.sequence_id, batch.position)
    each = F.cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten(),
                           ignore_index=data.IGNORED, reduction="none")
    return each.view_as(batch.targets)


def compared(plumbline, model, policy, batches):
    """Returns {causal policy: LeakMeter} of one model, over all batches."""
    meters = {causal: plumbline.LeakMeter() for causal in routers.CAUSAL}
    for batch in batches:
        own = losses(model, batch, policy)
        for causal, meter in meters.items():
            meter.add(own, losses(model, batch, causal), sequence_id=batch.sequence_id,
                      position=batch.position, padding_mask=batch.targets == data.IGNORED,
                      pool_id=batch.pool_id)
    return meters


def row(options, train_loss, causal, found):
    kept = ("difference", "interval", "no_interval", "level", "training_loss", "causal_loss", "tokens",
            "moved_tokens", "sequences", "unit", "units", "moved_units", "nonfinite", "by_position", "text")
    return {"router": options.router, "seed": options.seed, "steps": options.steps, "causal": causal,
            "last_training_steps": train_loss, **{name: getattr(found, name) for name in kept}}


def line(found):
    spread = ("all equal" if not found["moved_tokens"] else "no interval" if not found["interval"] else
              "{:+.4f} to {:+.4f}".format(*found["interval"]))
    return (f"{found['router']:14} {found['causal']:10} {found['training_loss']:10.4f} "
            f"{found['causal_loss']:10.4f} {found['difference']:+11.4f}   {spread}")


def run(own, each):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    plumbline = import_plumbline()
    documents = data.load_documents()
    held_out = documents[::HELD_OUT]
    learned = [d for number, d in enumerate(documents) if number % HELD_OUT]
    rows = []
    print(f"{'trained with':14} {'run with':10} {'CE trained':>10} {'CE causal':>10} {'difference':>11}   "
          f"{100 * own.level:g} % interval (nats per token, {own.batches} batches of {each[0].batch} x "
          f"{each[0].seq})")
    for options in each:
        began = time.monotonic()
        batches = data.TextBatches(held_out, options.batch, options.seq, options.layout,
                                   options.seed + EVALUATION, steps=own.batches)
        model, train_loss = trained(options, learned)
        for causal, meter in compared(plumbline, model, options.router,
                                      map(batches.__getitem__, range(own.batches))).items():
            rows.append(row(options, train_loss, causal, meter.result(own.level)))
            print(line(rows[-1]), flush=True)
        print(f"  {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return rows


def main(argv):
    own, each = arguments(argv)
    try:
        rows = run(own, each)
    except FileNotFoundError as error:
        print(f"consequence.py: {error}", file=sys.stderr)
        return 2
    if own.json:
        with open(own.json, "w") as file:
            json.dump(rows, file, indent=1, allow_nan=False)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
