#!/usr/bin/python3
"""Trains a small language model on the examples' text, data-parallel, with sums in fp32 or 16 bits.

  train.py --launch 4 --hook fp16 --steps 200 --server 127.0.0.1:7433 --record runs/fp16
  train.py --weights bfloat16 --optimizer adam --watch updates --record runs/no-master
  train.py --launch 2 --pause .05 --slow-rank 1:.1 --record runs/slow
  train.py --micro-batches 1024 --accumulator bfloat16 --watch gradients --record runs/accumulate

The same arguments give the same losses to the last bit, whatever the probes do.
"""

import argparse
import contextlib
import json
import os
import sys

import torch
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "moe_pytorch"))

import data  # noqa: E402  the text and the launcher are those of the other example
import ranks  # noqa: E402
import faults  # noqa: E402
from hooks import HOOKS  # noqa: E402
from model import Model  # noqa: E402
from precision import Accumulator, Average, Updates, global_norm  # noqa: E402
from probes import Probes, Silent  # noqa: E402

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sums = parser.add_argument_group("accumulators")
    sums.add_argument("--hook", choices=HOOKS, default="fp32", help="how gradients are averaged")
    sums.add_argument("--weights", choices=DTYPES, default="float32")
    sums.add_argument("--master", action="store_true", help="fp32 copies of 16-bit weights")
    sums.add_argument("--optimizer", choices=("sgd", "adam"), default="adam")
    sums.add_argument("--ema", choices=DTYPES, help="keep a moving average of the weights")
    sums.add_argument("--decay", type=float, default=0.999, help="of the moving average")
    sums.add_argument("--micro-batches", type=int, default=1, help="gradients summed a step")
    sums.add_argument("--accumulator", choices=DTYPES, default="float32")
    run = parser.add_argument_group("training")
    run.add_argument("--steps", type=int, default=100)
    run.add_argument("--batch", type=int, default=16, help="rows of a micro-batch")
    run.add_argument("--seq", type=int, default=64, help="tokens of a row")
    run.add_argument("--hidden", type=int, default=256)
    run.add_argument("--lr", type=float, default=1e-3)
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--launch", type=int, metavar="N", help="start N ranks on this host")
    run.add_argument("--overflow", metavar="RANK:STEP", help="make one rank's layer overflow there")
    run.add_argument("--flip", metavar="RANK:STEP", help="flip one bit of one weight there")
    run.add_argument("--log", metavar="FILE", help="JSON lines, one a step, by rank 0")
    run.add_argument("--quiet", action="store_true", help="no progress on standard output")
    faults.add_arguments(parser)
    watch = parser.add_argument_group("probes")
    watch.add_argument("--probes", choices=("on", "off"), default="on")
    watch.add_argument("--watch", nargs="*", default=["weights"], metavar="WHAT",
                       choices=("updates", "averages", "gradients", "weights", "activations"),
                       help="besides the collective: %(choices)s")
    watch.add_argument("--run", default="ddp", help="the run's name")
    watch.add_argument("--budget", type=float, metavar="SHARE",
                       help="share of the step time that probes may take (else the agent's own)")
    watch.add_argument("--server", metavar="ADDR", help="plumbd to send to")
    watch.add_argument("--record", metavar="DIR", help="folder to record to")
    watch.add_argument("--patience", type=float, default=2.0, metavar="SECONDS",
                       help="how long the end may wait for the last evidence to be delivered")
    options = parser.parse_args(argv)
    for name in ("steps", "batch", "seq", "hidden", "micro_batches"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}; expected >= 1")
    if options.launch is not None and options.launch < 1:
        parser.error(f"--launch is {options.launch}; expected >= 1")
    return options


class Trainer:
    """One rank: its model, accumulators, data and probes."""

    def __init__(self, options):
        self.options = options
        self.rank, self.world = ranks.rank_and_world()
        torch.manual_seed(options.seed)  # the same parameters on every rank
        self.model = Model(data.VOCABULARY, hidden=options.hidden).to(DTYPES[options.weights])
        wanted = options.probes == "on" and (options.server or options.record)
        self.probes = Probes(options.run, options.server, options.record, options.watch,
                             options.budget, options.patience) if wanted else Silent()
        self.replica = self.model
        if self.world > 1:
            self.replica = DistributedDataParallel(self.model)
            self.replica.register_comm_hook(None, self.probes.hook(HOOKS[options.hook]))
        self.faults = faults.Faults(options, self.rank, self.probes)
        self.probes.activations(self.model)
        self.updates = Updates(self.model, options.optimizer, options.lr, options.master)
        self.average = (Average(self.model, DTYPES[options.ema], options.decay)
                        if options.ema else None)
        self.accumulator = (Accumulator(self.model, DTYPES[options.accumulator])
                            if options.micro_batches > 1 else None)
        total = options.steps * options.micro_batches
        self.batches = data.TextBatches(data.load_documents(), options.batch, options.seq,
                                        seed=options.seed, rank=self.rank, steps=total)

    def train(self):
        for step in range(self.options.steps):
            with self.probes.step(step):
                yield self.step(step)

    def step(self, step):
        count = self.options.micro_batches
        loss = 0.0
        if self.accumulator:
            self.accumulator.clear()
        self.overflow(step)
        for i in range(count):
            with self.probes.span("data"):
                self.faults.load()
                batch = self.batches[step * count + i]
            self.faults.compute(step)
            loss += self.backward(batch, last=i + 1 == count) / count
        if self.accumulator:
            self.accumulator.hand_over(count)
        norm = global_norm(self.model.parameters())
        self.updates.step(self.probes)
        if self.average:
            self.average.step(self.probes)
        self.flip_a_bit(step)
        self.probes.weights(self.model)
        self.probes.scalar("loss", loss)
        self.faults.meet(step)
        self.faults.end_step(step, self.model)
        return {"step": step, "loss": loss, "grad_norm": norm}

    def backward(self, batch, last):
        """Computes the gradients of one micro-batch. The ranks reduce at the last one, or at each if they are summed here."""
        logits = self.replica(batch.tokens)
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten(),
                               ignore_index=data.IGNORED)
        loss.backward()
        if self.accumulator:
            self.accumulator.add(self.probes)
        return loss.item()

    def overflow(self, step):
        """Makes weights so large that the layer's products exceed fp32."""
        if self.options.overflow == f"{self.rank}:{step}":
            with torch.no_grad():
                self.model.hidden.weight.fill_(3e38)

    def flip_a_bit(self, step):
        """Flips one bit of one weight of one rank, like a failing memory chip."""
        if self.options.flip != f"{self.rank}:{step}":
            return
        weight = self.model.hidden.weight.detach().view(-1)
        wide = weight.element_size() == 4
        bits = weight[7:8].view(torch.int32 if wide else torch.int16)
        bits ^= 1 << (20 if wide else 4)


def report(record, log, quiet):
    """Writes a line for people, and one with every bit of the floats for the log."""
    if log:
        exact = {name: value.hex() if isinstance(value, float) else value
                 for name, value in record.items()}
        log.write(json.dumps(exact) + "\n")
        log.flush()
    if not quiet and record["step"] % 10 == 0:
        print(f"step {record['step']:5d}  loss {record['loss']:.4f}", flush=True)


def train(options):
    torch.set_num_threads(1)  # one order of summation; the ranks share the cores
    torch.use_deterministic_algorithms(True)
    ranks.join()
    trainer = Trainer(options)
    first = trainer.rank == 0
    try:
        with open(options.log, "w") if first and options.log else contextlib.nullcontext() as log:
            for record in trainer.train():
                if first:
                    report(record, log, options.quiet)
    finally:
        trainer.probes.finish()
        ranks.leave()


def main(argv):
    options = arguments(argv)
    if options.launch and options.launch > 1 and "RANK" not in os.environ:
        return ranks.launch(options.launch, [os.path.abspath(__file__), *argv])
    train(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
