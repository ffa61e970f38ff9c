"""A small language model over bytes: it predicts each byte from the window before it."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """Two hidden layers over the embeddings of the last `window` bytes."""

    def __init__(self, vocabulary, window=8, dim=32, hidden=256):
        super().__init__()
        self.window, self.pad = window, vocabulary - 1
        self.embed = nn.Embedding(vocabulary, dim)
        self.input = nn.Linear(window * dim, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.hidden = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, tokens):
        """Maps [B,S] int64 to logits [B,S,V]: position s sees tokens s-window+1 .. s."""
        padded = F.pad(tokens, (self.window - 1, 0), value=self.pad)
        windows = padded.unfold(1, self.window, 1)
        x = F.gelu(self.input(self.embed(windows).flatten(2)))
        x = x + F.gelu(self.hidden(self.norm(x)))
        return self.output(x)
