"""Small modules that resemble a router but are not routers, with the same sizes as those of router_kinds.py."""

import torch
from torch import nn

H, E = 16, 8  # width, experts


class GatedUnit(nn.Module):
    """A linear layer of eight outputs that opens and closes something."""

    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(H, E), nn.Linear(H, E), nn.Linear(E, H)

    def forward(self, x):
        return self.down(self.gate(x).sigmoid() * self.up(x))


class SparseAttention(nn.Module):
    """Top-k of the attention scores."""

    def __init__(self):
        super().__init__()
        self.top_k, self.num_heads = 4, 2
        self.q, self.k, self.v, self.head_gate = nn.Linear(H, H), nn.Linear(H, H), nn.Linear(H, H), nn.Linear(H, E)

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        later = torch.triu(torch.ones_like(scores, dtype=torch.bool), 1)
        scores = scores.masked_fill(later, -1e9)
        least = scores.topk(self.top_k, dim=-1).values[..., -1:]
        return scores.masked_fill(scores < least, -1e9).softmax(-1) @ self.v(x) * self.head_gate(x).mean(-1, keepdim=True).sigmoid()


class Classifier(nn.Module):
    """The number of layers equals the number of classes, and the head has an argmax."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(H, H) for _ in range(E))
        self.head = nn.Linear(H, E)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).tanh()
        logits = self.head(x)
        self.predicted = logits.argmax(dim=-1)
        return x + logits.softmax(-1).amax(-1, keepdim=True)
