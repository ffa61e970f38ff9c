"""A small mixture-of-experts transformer that predicts the next byte of a text."""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F

from routers import normalises, route


class Attention(nn.Module):
    """Causal self-attention within each sequence: a packed neighbour is never visible."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, allowed):
        batch, length, dim = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2)
                   for t in self.qkv(x).chunk(3, dim=-1))
        scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
        weights = torch.softmax(scores.float().masked_fill(~allowed, float("-inf")), dim=-1)
        mixed = weights.to(v.dtype) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, dim))


class Expert(nn.Module):
    """A two-layer perceptron."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MixtureOfExperts(nn.Module):
    """A gate, a routing policy, and experts."""

    def __init__(self, name, dim, hidden, experts, top_k, policy, capacity_factor):
        super().__init__()
        self.name, self.top_k = name, top_k
        self.policy, self.capacity_factor = policy, capacity_factor
        self.normalised = normalises(policy)  # how the experts are trained, whatever policy routes tokens later
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(experts))

    def forward(self, x):
        """Maps x [T, dim] to ([T, dim], the Routing that was used)."""
        routing = route(self.policy, self.gate(x), self.top_k, self.capacity_factor,
                        self.normalised)
        weights = routing.weights.to(x.dtype)
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = routing.assigned[:, number].nonzero().squeeze(1)
            if len(rows):
                share = weights[rows, number].unsqueeze(1)
                mixed = mixed.index_add(0, rows, (share * expert(x[rows])).to(mixed.dtype))
        return mixed, routing


class Block(nn.Module):
    def __init__(self, name, dim, heads, hidden, **mixture):
        super().__init__()
        self.before_attention = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.before_experts = nn.LayerNorm(dim)
        self.experts = MixtureOfExperts(name, dim, hidden, **mixture)

    def forward(self, x, allowed):
        x = x + self.attention(self.before_attention(x), allowed)
        mixed, routing = self.experts(self.before_experts(x).flatten(0, 1))
        return x + mixed.view_as(x), routing


class Model(nn.Module):
    """Maps bytes to logits of the next byte, and returns the routing of each layer."""

    def __init__(self, vocabulary, length, dim=128, layers=4, heads=4, hidden=None, **mixture):
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)
        self.place = nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(
            Block(f"layers.{n}", dim, heads, hidden or 4 * dim, **mixture) for n in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens, sequence_id, position, observe=None):
        """All inputs are [B, S]. Calls `observe(layer, routing)` for each layer when it is routed."""
        x = self.token(tokens) + self.place(position)
        allowed = self._allowed(sequence_id)
        routings = []
        for block in self.blocks:
            x, routing = block(x, allowed)
            if observe is not None:
                observe(block.experts.name, routing)
            routings.append(routing)
        return self.head(self.norm(x)), routings

    @contextlib.contextmanager
    def routed_by(self, policy):
        """In this context, the same weights use another routing policy."""
        layers = [block.experts for block in self.blocks]
        own = [layer.policy for layer in layers]
        try:
            for layer in layers:
                layer.policy = policy
            yield self
        finally:
            for layer, before in zip(layers, own):
                layer.policy = before

    @staticmethod
    def _allowed(sequence_id):
        """Returns [B, 1, S, S]: the query's own sequence, up to itself."""
        same = sequence_id.unsqueeze(2) == sequence_id.unsqueeze(1)
        return same.tril().unsqueeze(1)


def balance_loss(routing):
    """Returns Switch Transformer's auxiliary loss (Fedus et al. 2021, eq. 4): 1 if balanced, at most E."""
    experts = routing.scores.shape[1]
    first = routing.logits.detach().argmax(dim=1)
    share = torch.bincount(first, minlength=experts).to(routing.scores.dtype) / len(first)
    return experts * (share * routing.scores.mean(dim=0)).sum()
