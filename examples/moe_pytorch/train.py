#!/usr/bin/python3
"""Trains a small mixture-of-experts language model on the examples' text, watched by Plumbline.

  train.py --router dropless --steps 200
  train.py --router score-drop --launch 2 --steps 200 --server 127.0.0.1:7433 --record runs/leak

The same arguments give the same losses to the last bit, whatever the probes do.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time

import torch
from torch.nn import functional as F

import data
import ranks
import routers
from model import Model, balance_loss
from probes import Probes, Silent

BALANCE_WEIGHT = 0.01  # the Switch Transformer's
STEPS_PER_EPOCH = 50   # each epoch forks a new data worker


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    model = parser.add_argument_group("model")
    model.add_argument("--router", choices=routers.POLICIES, default="dropless")
    model.add_argument("--experts", type=int, default=8)
    model.add_argument("--top-k", type=int, default=2)
    model.add_argument("--capacity-factor", type=float, default=1.0)
    model.add_argument("--layers", type=int, default=4)
    model.add_argument("--dim", type=int, default=128)
    model.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32",
                       help="of the matrix products; parameters stay float32")
    run = parser.add_argument_group("training")
    run.add_argument("--steps", type=int, default=100)
    run.add_argument("--seconds", type=float, help="stop after this time, if --steps come later")
    run.add_argument("--batch", type=int, default=8, help="rows of a rank")
    run.add_argument("--seq", type=int, default=128, help="tokens of a row")
    run.add_argument("--layout", choices=("packed", "window"), default="packed",
                     help="several documents a row, or one (padded when short)")
    run.add_argument("--text", metavar="GLOB", default=data.TEXT_PATTERN, help="files to learn from")
    run.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    run.add_argument("--lr", type=float, default=2e-3)
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--workers", type=int, default=1, help="forked data workers")
    run.add_argument("--launch", type=int, metavar="N", help="start N ranks on this host")
    run.add_argument("--checkpoint", metavar="FILE", help="written every 50 steps by rank 0")
    run.add_argument("--log", metavar="FILE", help="JSON lines, one a step, by rank 0")
    run.add_argument("--quiet", action="store_true", help="no progress on standard output")
    watch = parser.add_argument_group("probes")
    watch.add_argument("--probes", choices=("on", "off", "alternate"), default="on",
                       help="alternate: on and off in blocks of steps, to measure their cost")
    watch.add_argument("--block", type=int, default=10, help="steps of a block of alternate")
    watch.add_argument("--run", default="moe", help="the run's name")
    watch.add_argument("--server", metavar="ADDR", help="plumbd to send to")
    watch.add_argument("--record", metavar="DIR", help="folder to record to")
    watch.add_argument("--patience", type=float, default=2.0, metavar="SECONDS",
                       help="how long the end may wait for the last evidence to be delivered")
    options = parser.parse_args(argv)
    for name in ("experts", "top_k", "layers", "dim", "steps", "batch", "seq", "block"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}; expected >= 1")
    if options.top_k > options.experts:
        parser.error(f"--top-k is {options.top_k}; expected at most --experts, {options.experts}")
    if not options.capacity_factor > 0:
        parser.error(f"--capacity-factor is {options.capacity_factor}; expected > 0")
    if options.dim % 4:
        parser.error(f"--dim is {options.dim}; expected a multiple of 4, the attention heads")
    if options.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device is {options.device}; this PyTorch sees no CUDA device")
    if options.launch is not None and options.launch < 1:
        parser.error(f"--launch is {options.launch}; expected >= 1")
    return options


class Trainer:
    """One rank: its model, optimizer, data and probes."""

    def __init__(self, options, documents=None):
        """documents: training documents; by default those of --text."""
        self.options = options
        self.rank, self.world = ranks.rank_and_world()
        torch.manual_seed(options.seed)  # the same parameters on every rank
        self.model = Model(data.VOCABULARY, options.seq, options.dim, options.layers,
                           experts=options.experts, top_k=options.top_k, policy=options.router,
                           capacity_factor=options.capacity_factor).to(options.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.lr,
                                           betas=(0.9, 0.98), weight_decay=0.01)
        documents = documents or data.load_documents(options.text)
        self.dataset = data.TextBatches(documents, options.batch, options.seq,
                                        options.layout, options.seed, self.rank, options.steps)
        wanted = options.probes != "off" and (options.server or options.record)
        self.probes = Probes(options.run, options.server, options.record,
                             options.patience) if wanted else Silent()

    def probes_of(self, step):
        """Returns the probes; in blocks in which --probes alternate leaves them out, Silent()."""
        if self.options.probes == "alternate" and step // self.options.block % 2:
            return Silent()
        return self.probes

    def train(self):
        batches, began, stop = iter(()), time.monotonic(), False
        step = 0
        while step < self.options.steps and not stop:
            if step % STEPS_PER_EPOCH == 0:
                end = min(step + STEPS_PER_EPOCH, self.options.steps)
                batches = data.ahead(iter(data.loader(self.dataset, step, end, self.options.workers)))
            started, worked = time.perf_counter(), time.process_time()
            record = self.step(step, batches, self.probes_of(step), began)
            record["seconds"] = time.perf_counter() - started
            record["cpu_seconds"] = time.process_time() - worked  # of all threads
            record["unix_seconds"] = time.time()  # end time of the step
            stop = record.pop("stop")
            yield record
            step += 1

    def step(self, step, batches, probes, began):
        with probes.step(step):
            with probes.span("data"):
                batch = next(batches).to(self.options.device)
            with probes.span("forward"):
                loss, balance, dropped = self.forward(batch, probes)
            with probes.span("backward"):
                self.optimizer.zero_grad(set_to_none=True)
                (loss + BALANCE_WEIGHT * balance).backward()
                ranks.average_gradients(list(self.model.parameters()))
            with probes.span("optimizer"):
                grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.set_learning_rate(step)
                self.optimizer.step()
            probes.scalar("loss", loss.item())
            probes.scalar("grad_norm", grad_norm.item())
            if self.options.checkpoint and (step + 1) % 50 == 0:
                with probes.span("checkpoint"):
                    self.save(step)
        late = self.options.seconds and time.monotonic() - began > self.options.seconds
        shared = ranks.average(torch.tensor([loss.item(), dropped, float(bool(late))]))
        return {"step": step, "loss": shared[0].item(), "grad_norm": grad_norm.item(),
                "dropped": shared[1].item(), "probes": not isinstance(probes, Silent),
                "stop": shared[2].item() > 0}

    def forward(self, batch, probes):
        precision = (torch.autocast(batch.tokens.device.type, dtype=torch.bfloat16)
                     if self.options.dtype == "bfloat16" else contextlib.nullcontext())
        with precision:
            logits, routings = self.model(
                batch.tokens, batch.sequence_id, batch.position,
                observe=lambda layer, routing: probes.routing(layer, routing, batch))
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten(),
                               ignore_index=data.IGNORED)
        balance = sum(balance_loss(r) for r in routings) / len(routings)
        return loss, balance, sum(r.dropped for r in routings) / len(routings)

    def set_learning_rate(self, step):
        """Sets the learning rate: a short linear warm-up, then constant."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.lr * min(1.0, (step + 1) / 20)

    def save(self, step):
        if self.rank:
            return
        temporary = self.options.checkpoint + ".part"
        torch.save({"step": step, "model": self.model.state_dict(),
                    "optimizer": self.optimizer.state_dict()}, temporary)
        os.replace(temporary, self.options.checkpoint)


def report(record, log, quiet):
    """Writes a line for people, and one with every bit of the floats for the log."""
    if log:
        exact = {name: value.hex() if isinstance(value, float) and "seconds" not in name else value
                 for name, value in record.items()}
        log.write(json.dumps(exact) + "\n")
        log.flush()
    if not quiet and record["step"] % 10 == 0:
        print(f"step {record['step']:5d}  loss {record['loss']:.4f}  "
              f"dropped {100 * record['dropped']:.1f} %  {record['seconds']:.2f} s", flush=True)


def train(options):
    torch.set_num_threads(1)  # one order of summation; the ranks share the cores
    # On a GPU this needs CUBLAS_WORKSPACE_CONFIG=:4096:8, and warns about operations without a deterministic algorithm.
    torch.use_deterministic_algorithms(True, warn_only=options.device != "cpu")
    ranks.join()
    trainer = Trainer(options)
    first = trainer.rank == 0
    if first and not options.quiet:
        size = sum(p.numel() for p in trainer.model.parameters())
        print(f"{size / 1e6:.1f} M parameters, {options.router}, {trainer.world} rank(s), "
              f"{len(trainer.dataset.documents)} documents", flush=True)
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
    # SIGTERM ends the program like Ctrl-C, through `finally`, so that the probes send a goodbye.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.launch:
            at = argv.index("--launch") if "--launch" in argv else None
            rest = argv[:at] + argv[at + 2:] if at is not None else [
                a for a in argv if not a.startswith("--launch=")]
            return ranks.launch(options.launch, [os.path.abspath(__file__), *rest])
        train(options)
    except FileNotFoundError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
