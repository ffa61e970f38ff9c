"""A small causal transformer, with a cache of keys and values for the engine."""

import torch
from torch import nn
from torch.nn import functional as F

import task


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, cache):
        batch, length, dim = x.shape
        split = self.qkv(self.norm_attention(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        if cache is not None:
            if cache:
                k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
            cache[:] = [k, v]
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        total = k.shape[2]
        future = torch.ones(length, total, dtype=torch.bool).triu(total - length + 1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(F.gelu(self.up(self.norm_mlp(x))))


class Policy(nn.Module):
    """Maps tokens [B, T] to logits [B, T, V]. With `caches` (a list per block) tokens are appended to them."""

    def __init__(self, dim=64, heads=4, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(task.VOCABULARY, dim)
        self.positions = nn.Embedding(task.PROMPT_TOKENS + task.RESPONSE_TOKENS, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, task.VOCABULARY)

    def forward(self, tokens, caches=None):
        start = caches[0][0].shape[2] if caches and caches[0] else 0
        x = self.tokens(tokens) + self.positions.weight[start:start + tokens.shape[1]]
        for i, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[i])
        return self.head(self.norm(x))

    def empty_caches(self):
        return [[] for _ in self.blocks]


def distribution(logits):
    """Returns log-probabilities, entropy and varentropy (nats) of the softmax over the last axis.

    -inf logits have probability 0.
    """
    logp = logits.double().log_softmax(-1)
    p = logp.exp()
    surprise = torch.where(p > 0, -logp, torch.zeros_like(logp))
    entropy = (p * surprise).sum(-1)
    varentropy = (p * (surprise - entropy[..., None]) ** 2).sum(-1)
    return logp, entropy, varentropy
