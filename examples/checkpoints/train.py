#!/usr/bin/env python3
"""A small trainer that writes real checkpoints and knows nothing of Plumbline: `plumb audit OUT` looks into them afterwards.

    train.py OUT                      # step-25/model.pt, step-50/model.pt, ...: model, optimizer, schedule
    train.py OUT --kind ddp           # two processes, a file each: step-25/rank_0.pt, step-25/rank_1.pt
    train.py OUT --kind ema           # with a moving average of the weights (torch's AveragedModel)
    train.py OUT --kind resumed       # stops half way, builds everything anew from the file, goes on
    train.py OUT --kind bf16          # weights in bf16; the optimizer steps fp32 masters and saves them

`--fault` makes a mistake that no loss curve shows, and that people make:

    optimizer    the resume forgets the optimizer's state     (kind resumed)
    schedule     the resume forgets the schedule              (kind resumed)
    masters      weights are made from their masters when the next step begins, so what is saved is a step old   (kind bf16)
    average      the average is kept in bf16, where it cannot follow; give it 1,600 steps                        (kind ema)
"""

import argparse
import pathlib
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

WORDS = 48


class Model(nn.Module):
    """Predicts a token from the one before it."""

    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return self.head(self.norm(x))


def batch(generator, size=16):
    """Returns tokens and the next ones: a rule with a tenth of noise."""
    tokens = torch.randint(0, WORDS, (size, 24), generator=generator)
    noise = torch.rand(tokens.shape, generator=generator) < 0.1
    after = torch.where(noise, torch.randint(0, WORDS, tokens.shape, generator=generator), (tokens * 7 + 3) % WORDS)
    return tokens, after


class Trainer:
    """Everything that a checkpoint holds."""

    def __init__(self, arguments):
        self.kind, self.steps, self.late = arguments.kind, arguments.steps, arguments.fault == "masters"
        bf16 = self.kind == "bf16"
        self.model = Model(arguments.width).to(torch.bfloat16 if bf16 else torch.float32)
        # In bf16 most updates are smaller than half a unit, so the optimizer steps fp32 copies.
        weights = list(self.model.parameters())
        self.masters = [w.detach().float().requires_grad_() for w in weights] if bf16 else None
        stepped = self.masters or weights
        groups = [{"params": [w for w in stepped if w.dim() > 1], "weight_decay": 0.1},
                  {"params": [w for w in stepped if w.dim() <= 1], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=arguments.lr)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=arguments.lr, total_steps=arguments.steps + 1)
        decay = 0.999 if arguments.fault == "average" else 0.99
        self.average = None
        if self.kind == "ema":
            self.average = torch.optim.swa_utils.AveragedModel(self.model, avg_fn=lambda a, w, n: a * decay + w.to(a.dtype) * (1 - decay))
            if arguments.fault == "average":
                self.average = self.average.to(torch.bfloat16)
        self.step = 0

    def round_masters(self):
        with torch.no_grad():
            for master, weight in zip(self.masters or [], self.model.parameters()):
                weight.copy_(master)

    def train(self, forward, generator):
        if self.late:
            self.round_masters()
        tokens, after = batch(generator)
        loss = F.cross_entropy(forward(tokens).float().flatten(0, 1), after.flatten())
        self.model.zero_grad()
        loss.backward()
        if self.masters:
            for master, weight in zip(self.masters, self.model.parameters()):
                master.grad = weight.grad.float()
        self.optimizer.step()
        self.schedule.step()
        if not self.late:
            self.round_masters()
        if self.average:
            self.average.update_parameters(self.model)
        self.step += 1
        return loss.item()

    def saved(self):
        checkpoint = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                      "lr_scheduler": self.schedule.state_dict(), "step": self.step}
        if self.masters:  # next to the moments, as in Apex and Transformer Engine
            for number, group in enumerate(self.optimizer.param_groups):
                for key, master in zip(checkpoint["optimizer"]["param_groups"][number]["params"], group["params"]):
                    checkpoint["optimizer"]["state"][key]["master_param"] = master.detach()
        if self.average:
            checkpoint["ema"] = self.average.state_dict()
        return checkpoint

    def load(self, checkpoint, fault):
        self.model.load_state_dict(checkpoint["model"])
        self.step = checkpoint["step"]
        state = checkpoint["optimizer"]
        masters = {k: v.pop("master_param") for k, v in state["state"].items() if "master_param" in v}
        if fault != "optimizer":
            self.optimizer.load_state_dict(state)
        for number, group in enumerate(self.optimizer.param_groups):
            for key, master in zip(state["param_groups"][number]["params"], group["params"]):
                if key in masters:
                    master.data.copy_(masters[key])
        if fault == "optimizer":  # the schedule knows the learning rate
            for group, saved in zip(self.optimizer.param_groups, state["param_groups"]):
                group.update({k: v for k, v in saved.items() if k != "params"})
        if fault != "schedule":
            self.schedule.load_state_dict(checkpoint["lr_scheduler"])
        if self.average:
            self.average.load_state_dict(checkpoint["ema"])


def run(rank, arguments, port):
    ranks = 2 if arguments.kind == "ddp" else 1
    torch.manual_seed(arguments.seed)  # the same weights on each rank
    torch.set_num_threads(1)
    trainer = Trainer(arguments)
    forward = trainer.model
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
        forward = nn.parallel.DistributedDataParallel(trainer.model)
    generator = torch.Generator().manual_seed(1000 * arguments.seed + rank)  # different data on each rank
    out = pathlib.Path(arguments.out)
    stop = arguments.steps // 2 // arguments.every * arguments.every if arguments.kind in ("resumed", "bf16") else 0
    while trainer.step < arguments.steps:
        loss = trainer.train(forward, generator)
        if trainer.step % arguments.every == 0:
            folder = out / f"step-{trainer.step}"
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(trainer.saved(), folder / (f"rank_{rank}.pt" if ranks > 1 else "model.pt"))
            if rank == 0 and not arguments.quiet:
                print(f"step {trainer.step}: loss {loss:.4f}")
        if trainer.step == stop:
            # The job ended here. The next one builds everything again and loads what was saved.
            trainer = Trainer(arguments)
            forward = trainer.model
            trainer.load(torch.load(out / f"step-{stop}" / "model.pt"), arguments.fault)
            stop = 0
    if ranks > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="the folder of the run")
    parser.add_argument("--kind", choices=["plain", "ddp", "ema", "resumed", "bf16"], default="plain")
    parser.add_argument("--fault", choices=["none", "optimizer", "schedule", "masters", "average"], default="none")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=25, help="steps from checkpoint to checkpoint")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    if arguments.kind != "ddp":
        return run(0, arguments, 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(run, (arguments, port), nprocs=2)


if __name__ == "__main__":
    main()
