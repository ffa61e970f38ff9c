#!/usr/bin/env python3
"""Checks a small language model for dependence on later tokens.

    check.py                    passes
    check.py --leak mask        the attention's mask lets each row see the next token
    check.py --leak norm        a normalisation over all tokens of a sequence
    check.py --html leak.html   writes the report as a page
"""

import argparse
import sys

import torch
from torch import nn

import plumbline


class Attention(nn.Module):
    def __init__(self, width, ahead):
        super().__init__()
        self.qkv, self.out, self.ahead = nn.Linear(width, 3 * width), nn.Linear(width, width), ahead

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1 + self.ahead)
        return self.out((q @ k.transpose(1, 2)).masked_fill(hidden, float("-inf")).softmax(-1) @ v)


class OverTokens(nn.Module):
    """Subtracts the mean of all tokens of a sequence."""

    def forward(self, x):
        return x - x.mean(1, keepdim=True)


class Language(nn.Module):
    def __init__(self, leak, width=32, vocabulary=64):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.norms = nn.ModuleList(OverTokens() if leak == "norm" and i == 1 else nn.LayerNorm(width) for i in range(3))
        self.layers = nn.ModuleList(Attention(width, int(leak == "mask" and i == 2)) for i in range(3))

    def forward(self, tokens):
        x = self.embed(tokens)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leak", choices=["none", "mask", "norm"], default="none")
    parser.add_argument("--html", metavar="FILE")
    options = parser.parse_args()
    torch.manual_seed(0)
    verdict = plumbline.check_causality(Language(options.leak), torch.randint(0, 64, (4, 32)))
    print(verdict)
    if options.html:
        with open(options.html, "w", encoding="utf-8") as page:
            page.write(verdict.to_html())
    return int(verdict.verdict != "passed")


if __name__ == "__main__":
    sys.exit(main())
