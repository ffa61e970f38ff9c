"""Random models without a leak."""

import torch
from causality_parts import (Attention, Checkpointed, ChunkedLinear, Convolution, Experts, Fourier, Model, Scaled, StateSpace, Sums, Twice,
                             Unordered)  # fmt: skip

_SINGLE = {"fourier", "total-minus-suffix", "twice"}  # no kernel for bf16, or its results are too coarse


def mixers(dice, width):
    """Returns one to four (name, function that makes it)."""
    one = dice.choice
    kinds = {
        "attention": lambda: Attention(width, heads=one([1, 2, 4]), rate=one([0.0, 0.1])),
        "window": lambda: Attention(width, window=one([1, 2, 5])),
        "masked-maximum": lambda: Attention(width, masked_max=True),
        "fused": lambda: Attention(width, fused=True, rate=one([0.0, 0.2])),
        "convolution": lambda: Convolution(width, size=one([2, 3, 4])),
        "fourier": lambda: Fourier(width),
        "sums": lambda: Sums(width),
        "total-minus-suffix": lambda: Sums(width, "total-minus-suffix"),
        "state-space": lambda: StateSpace(width),
        "chunked": lambda: ChunkedLinear(width, chunk=one([2, 4, 8])),
        "experts": lambda: Experts(width, experts=one([2, 4, 8]), rate=one([0.0, 0.1])),
        "scaled": lambda: Scaled(width),
        "unordered": lambda: Unordered(width),
        "twice": lambda: Twice(one([Attention, Fourier, Convolution, Sums])(width)),
        "checkpointed": lambda: Checkpointed(Attention(width)),
    }
    names = [one(list(kinds)) for _ in range(dice.randint(1, 4))]
    return [(name, kinds[name]) for name in names]


def clean_model(dice):
    """Returns (names of its mixers, model, batch, length, vocabulary, mode)."""
    width, vocabulary = dice.choice([8, 16, 32]), dice.choice([5, 29, 97])
    chosen = mixers(dice, width)
    names = [name for name, _ in chosen]
    kinds = [torch.float32] if _SINGLE & set(names) else [torch.float32] * 4 + [torch.bfloat16, torch.float64]
    model = Model([make() for _, make in chosen], width, vocabulary, dice.choice(["bsh", "sbh", "flat"]), dice.choice([0.0, 0.0, 0.1]),
                  dice.random() < 0.2, dice.random() < 0.2)  # fmt: skip
    return names, model.to(dice.choice(kinds)), dice.choice([1, 2, 3, 4]), dice.choice([5, 8, 13, 16, 24, 33, 48]), vocabulary, dice.choice([None, "eval"])
