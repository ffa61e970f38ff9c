"""Small models and data with random content."""

import torch
from torch import nn

VOCABULARY, LENGTH = 64, 16


class Language(nn.Module):
    """Predicts the next word; returns the mean loss."""

    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 64, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, words):
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1] - 1)
        hidden = self.block(self.embed(words[:, :-1]), mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), words[:, 1:].flatten())


def words(number, length=LENGTH):
    """Rows [number, length] of random words."""
    return torch.randint(0, VOCABULARY, (number, length), generator=torch.Generator().manual_seed(5))


def batches(number, rows=8):
    return words(number * rows).split(rows)


def finish_light(run, light, steps):
    """Ends a run at the default budget. Most of its steps must have been light."""
    if type(run).__name__ == "Run":
        if not run.finish():
            raise AssertionError("run.finish() is false")
        if light <= steps / 2:
            raise AssertionError(f"{light} of {steps} steps were light")
