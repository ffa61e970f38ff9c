#!/usr/bin/python3
"""Trains a small transformer on the bytes of a text. Two lines of it are Plumbline's: they are marked.

  train.py                                          # without it: the same losses, to the bit
  train.py --record runs/good                       # then: plumb audit runs/good
  train.py --record runs/bad --fault no-zero-grad   # a mistake that trains on, and is named
"""

import argparse
import sys

import torch
from torch import nn
from torch.nn import functional as F

FAULTS = {
    "none": "as it should be",
    "no-zero-grad": "gradients are not cleared: each step adds to those before",
    "left-out": "the optimizer does not hold the last block's parameters",
    "rate-zero": "the learning rate is 0",
    "nan": "a weight is NaN from step 30 on",
}
WIDTH, LENGTH, BATCH = 64, 64, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_perceptron = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        later = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device), 1)
        seen = self.before_attention(x)
        x = x + self.attention(seen, seen, seen, attn_mask=later, need_weights=False)[0]
        return x + self.perceptron(self.before_perceptron(x))


class Model(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.byte, self.place = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, tokens):
        x = self.byte(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def batches(path, steps):
    """Pieces of the file, anywhere in it."""
    with open(path, "rb") as file:
        text = torch.tensor(list(file.read()))
    for _ in range(steps):
        first = torch.randint(0, len(text) - LENGTH, (BATCH, 1))
        yield text[first + torch.arange(LENGTH + 1)]


def spoil(model, fault, step):
    if fault == "nan" and step == 30:
        with torch.no_grad():
            model.blocks[1].perceptron[0].weight[3, 5] = float("nan")


def train(options):
    """The loss of each step."""
    torch.manual_seed(options.seed)
    model = Model()
    held = [p for name, p in model.named_parameters() if options.fault != "left-out" or not name.startswith("blocks.1.")]
    optimizer = torch.optim.AdamW(held, lr=0.0 if options.fault == "rate-zero" else 1e-3)
    run = None
    if options.record or options.server:
        import plumbline
        run = plumbline.init(run=options.run, server=options.server, record=options.record,
                             budget=1)  # the first line; for 300 short steps the default of 1 % allows few measurements
        run.watch(model, optimizer)                                                          # the second
    for step, pieces in enumerate(batches(options.text, options.steps)):
        spoil(model, options.fault, step)
        loss = F.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if options.fault != "no-zero-grad":
            optimizer.zero_grad()
        yield loss.item()
    if run is not None:
        run.finish()


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--text", default=__file__, help="a file to learn; this program unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", default="watched", help="the run's name")
    parser.add_argument("--record", metavar="DIR", help="folder to record to")
    parser.add_argument("--server", metavar="ADDR", help="plumbd to send to")
    parser.add_argument("--fault", choices=FAULTS, default="none", help="; ".join(f"{name}: {what}" for name, what in FAULTS.items()))
    parser.add_argument("--exact", action="store_true", help="print every loss, all of its bits")
    return parser.parse_args(argv)


def main(argv):
    options = arguments(argv)
    torch.set_num_threads(1)  # one order of summation
    for step, loss in enumerate(train(options)):
        if options.exact:
            print(loss.hex())
        elif step % 20 == 0:
            print(f"step {step:4d}  loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
