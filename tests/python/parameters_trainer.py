"""A small language model whose parameters are not all alike, with the two lines in it. Prints a digest of its losses, a line a rank.

    parameters_trainer.py RECORD KIND [SEED]     RECORD: a folder, or "none": without Plumbline

KIND, and after a colon its variant or fault:
  unused     two ranks, DDP with find_unused_parameters: one layer that no step uses, one that rank 0 uses every third step
    :drifts  the layer that no step uses is written to on rank 1, before step 20
    :local   healthy too: rank 0 has the layer of every third step for itself, and DDP is configured to ignore it
  frozen     embedding and first block are frozen, the rest is trained
    :held    the first block is meant to be trained (requires_grad), and the optimizer was made without it
  tied       the head's weight is the embedding's
    :untied  the head got a weight of its own after the optimizer was made
    :nan     the shared weight holds a NaN before step 30
  moments    AdamW, whose moments are fp32
    :ratchet all is in bf16, moments too, beta2 0.999
    :falls   healthy: the same with beta2 0.95, so that they can fall
    :nan     a first moment holds a NaN before the update of step 30
"""

import hashlib
import os
import sys
import time

import torch
from torch import nn

import plumbline
import watched_trainer
from watched_trainer import WIDTH, WORDS, batch, on_ranks, notify

STEPS = int(os.environ.get("STEPS", "60"))
PAUSE = float(os.environ.get("PAUSE", "0"))


class Model(watched_trainer.Model):
    """`sometimes`: whether the layer that some steps use is used in this step."""

    def __init__(self, kind):
        super().__init__()
        self.branches = kind == "unused"
        if self.branches:
            self.never, self.seldom = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        if kind == "tied":
            nn.init.normal_(self.embed.weight, std=0.1)
            self.head.weight = self.embed.weight

    def forward(self, tokens, sometimes=False):
        x = self.embed(tokens) + self.place
        for block in self.blocks:
            x = block(x)
        if self.branches and sometimes:
            x = x + self.seldom(x)
        return self.head(x)


def frozen(model):
    return [*model.embed.parameters(), *model.blocks[0].parameters()]


def made(kind, wrong):
    """Returns (the model, its optimizer)."""
    model = Model(kind)
    if wrong in ("ratchet", "falls"):
        model = model.bfloat16()
    if kind == "frozen" and wrong != "held":
        for parameter in frozen(model):
            parameter.requires_grad_(False)
    left_out = {id(p) for p in model.blocks[0].parameters()} if wrong == "held" else set()
    known = [p for p in model.parameters() if p.requires_grad and id(p) not in left_out]
    optimizer = torch.optim.AdamW(known, lr=1e-3, weight_decay=0.1, betas=(0.9, 0.95 if wrong == "falls" else 0.999))
    if wrong == "untied":
        model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
    return model, optimizer


def wrap(model, kind, wrong):
    if kind != "unused":
        return model
    if wrong == "local":
        names = ["seldom.weight", "seldom.bias"]
        nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    return nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)


def damage(model, optimizer, wrong, step, rank):
    """Applies the fault before a step."""
    with torch.no_grad():
        if wrong == "drifts" and step == 20 and rank == 1:
            model.never.weight[2, 3] += 0.5
        if wrong == "nan" and step == 30 and model.head.weight is model.embed.weight:
            model.embed.weight[3, 5] = float("nan")


def damage_moments(model, optimizer, wrong, step):
    """Applies the fault before an update."""
    states = optimizer.state
    if wrong == "nan" and step == 30 and model.head.weight is not model.embed.weight:
        states[model.blocks[1].down.weight]["exp_avg"][3, 5] = float("nan")


def train(rank, record, kind, seed, ranks):
    kind, _, wrong = kind.partition(":")
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    if record != "none":
        run = plumbline.init(run="watched", record=record, budget=1)
    held, optimizer = made(kind, wrong)
    model = wrap(held, kind, wrong)
    if record != "none":
        run.watch(model, optimizer)
    text = torch.randint(0, WORDS, (4096,), generator=torch.Generator().manual_seed(7)).cumsum(0) % WORDS
    generator = torch.Generator().manual_seed(100 * seed + rank)
    seen = hashlib.sha256()
    for step in range(STEPS):
        damage(held, optimizer, wrong, step, rank)
        x, y = batch(text, generator)
        logits = model(x, sometimes=kind == "unused" and rank == 0 and step % 3 == 0)
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        loss.backward()
        time.sleep(PAUSE)
        damage_moments(held, optimizer, wrong, step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen.update(loss.detach().numpy().tobytes())
    notify(rank, seen, held)
    if record != "none":
        run.finish()


def main():
    record, kind = sys.argv[1:3]
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    on_ranks(train, record, kind, seed, 2 if kind.startswith("unused") else 1)


if __name__ == "__main__":
    main()
