"""Mixers of tokens for the tests of check_causality: modules x [B,S,H] -> [B,S,H], clean ones and ones with a planted leak."""

import os

import torch
import torch.nn.functional as F
from torch import nn

LOWEST = -1e9


def positions(length):
    """Returns i - j, [S,S]."""
    at = torch.arange(length)
    return at[:, None] - at[None, :]


class Attention(nn.Module):
    """leak: "off-by-one", "one-head", "slow-path" (in the mode `slow`), "edge" (one pair of positions), or None."""

    def __init__(self, width, heads=2, leak=None, window=None, prefix=0, masked_max=False, fused=False, rate=0.0):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.leak, self.window, self.prefix, self.masked_max, self.fused, self.rate = heads, leak, window, prefix, masked_max, fused, rate

    def hidden(self, length):
        """Returns the mask [heads,S,S], True if hidden."""
        ahead = positions(length)
        mask = (ahead < (-1 if self.leak == "off-by-one" else 0)).repeat(self.heads, 1, 1)
        if self.window is not None:
            mask |= ahead >= self.window
        if self.leak == "one-head":
            mask[-1] = False
        if self.leak == "slow-path" and not self.training:
            mask[:] = False
        if self.leak == "edge":
            edge = length // 2
            mask[:, edge - 1, edge] = False
        mask[:, : self.prefix, : self.prefix] = False
        return mask

    def forward(self, x, documents=None):
        b, s, h = x.shape
        q, k, v = self.qkv(x).reshape(b, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        mask = self.hidden(s)
        if documents is not None:
            mask = mask | (documents[:, None, :, None] != documents[:, None, None, :])
        rate = self.rate if self.training else 0.0
        if self.fused and hasattr(F, "scaled_dot_product_attention"):
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask, dropout_p=rate)
        else:
            scores = q @ k.transpose(-1, -2) * (h // self.heads) ** -0.5
            if self.masked_max:  # the maximum over hidden scores too: a constant factor of numerator and denominator
                weights = (scores - scores.amax(-1, keepdim=True)).exp().masked_fill(mask, 0.0)
                mixed = (weights / weights.sum(-1, keepdim=True)) @ v
            else:
                mixed = F.dropout(scores.masked_fill(mask, LOWEST).softmax(-1), rate) @ v
        return self.out(mixed.transpose(1, 2).reshape(b, s, h))


class Convolution(nn.Module):
    """A depthwise convolution. leak: it sees both sides."""

    def __init__(self, width, leak=False, size=3):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, 1, size) * 0.3)
        self.leak, self.size = leak, size

    def forward(self, x):
        pad = (self.size // 2, self.size - 1 - self.size // 2) if self.leak else (self.size - 1, 0)
        return F.conv1d(F.pad(x.transpose(1, 2), pad), self.weight, groups=x.shape[2]).transpose(1, 2)


class Fourier(nn.Module):
    """A long convolution by FFT. leak: circular, so the last tokens reach the first rows."""

    def __init__(self, width, leak=False):
        super().__init__()
        self.rate = nn.Parameter(torch.rand(width) + 0.1)
        self.leak = leak

    def forward(self, x):
        s = x.shape[1]
        kernel = torch.exp(-torch.arange(s, device=x.device, dtype=x.dtype)[:, None] * self.rate)
        n = s if self.leak else 2 * s
        return torch.fft.irfft(torch.fft.rfft(x, n, dim=1) * torch.fft.rfft(kernel, n, dim=0), n, dim=1)[:, :s]


class Sums(nn.Module):
    """A mean of the tokens so far. kind: "prefix", "total-minus-suffix" (rounding), or "leak": the mean of all."""

    def __init__(self, width, kind="prefix"):
        super().__init__()
        self.proj, self.kind = nn.Linear(width, width), kind

    def forward(self, x):
        y = self.proj(x)
        if self.kind == "leak":
            return y - y.mean(1, keepdim=True)
        if self.kind == "prefix":
            total = y.cumsum(1)
        else:
            suffix = y.flip(1).cumsum(1).flip(1)
            total = y.sum(1, keepdim=True) - F.pad(suffix[:, 1:], (0, 0, 0, 1))
        return total / torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]


class StateSpace(nn.Module):
    """A diagonal recurrence with a gate."""

    def __init__(self, width):
        super().__init__()
        self.gate, self.inp = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        keep, new, state, out = torch.sigmoid(self.gate(x)), self.inp(x), torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = keep[:, t] * state + (1 - keep[:, t]) * new[:, t]
            out.append(state)
        return torch.stack(out, 1)


class ChunkedLinear(nn.Module):
    """Linear attention in chunks. leak: the state of a chunk's own tokens is added before its rows."""

    def __init__(self, width, chunk=4, leak=False):
        super().__init__()
        self.qkv, self.chunk, self.leak = nn.Linear(width, 3 * width), chunk, leak

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(F.pad(x, (0, 0, 0, -s % self.chunk))).reshape(b, -1, self.chunk, 3, h).unbind(3)
        k = torch.softmax(k, -1)
        whole = torch.einsum("bnci,bncj->bnij", k, v)
        before = whole.cumsum(1) if self.leak else F.pad(whole.cumsum(1)[:, :-1], (0, 0, 0, 0, 1, 0))
        inside = (q @ k.transpose(-1, -2)).tril() @ v
        return (inside + q @ before).reshape(b, -1, h)[:, :s] / s


class Experts(nn.Module):
    """A mixture of experts. kind: "token" (each token's best, rows sorted by expert), "expert-choice", "capacity-score" (an expert drops
    its lowest scores), "capacity-order" (it drops the last ones of a sequence), "bias-first" (a balancing bias of this batch's load)."""

    def __init__(self, width, kind="token", experts=4, rate=0.0):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(rate), nn.Linear(width, width)) for _ in range(experts))
        self.kind = kind
        self.register_buffer("bias", torch.zeros(experts))

    def forward(self, x):
        b, s, h = x.shape
        logits = self.router(x.reshape(-1, h))
        if self.kind == "bias-first":
            load = F.one_hot(logits.argmax(-1), logits.shape[1]).to(logits.dtype).mean(0)
            self.bias.sub_(2.0 * (load - load.mean()).to(self.bias.dtype))
            logits = logits + self.bias
        gates = logits.softmax(-1)
        weights = self.chosen(gates, b, s)
        out = torch.zeros_like(x.reshape(-1, h))
        for e, expert in enumerate(self.experts):
            at = weights[:, e].nonzero().flatten()
            if len(at):
                out = out.index_add(0, at, expert(x.reshape(-1, h)[at]) * weights[at, e, None])
        return out.reshape(b, s, h)

    def chosen(self, gates, b, s):
        """Returns the weight of each token and expert, [B·S,E]."""
        number = gates.shape[1]
        if self.kind == "expert-choice":
            place = torch.zeros_like(gates).reshape(b, s, number)
            return place.scatter(1, gates.reshape(b, s, number).topk(max(1, s // number), 1)[1], 1.0).reshape(-1, number) * gates
        best = F.one_hot(gates.argmax(-1), number).to(gates.dtype)
        room, each = max(1, s // (2 * number)), best.reshape(b, s, number)
        if self.kind == "capacity-order":
            best = (each * (each.cumsum(1) <= room)).reshape(-1, number)
        if self.kind == "capacity-score":
            order = (each * gates.reshape(b, s, number)).argsort(1, descending=True).argsort(1)
            best = (each * (order < room)).reshape(-1, number)
        return best * gates


class Depths(nn.Module):
    """Mixture of depths: half of the tokens of a sequence pass the layer."""

    def __init__(self, width):
        super().__init__()
        self.score, self.layer = nn.Linear(width, 1), nn.Linear(width, width)

    def forward(self, x):
        score = self.score(x).squeeze(-1)
        top = score.topk(x.shape[1] // 2, 1)[1].sort(1)[0]
        at = top[..., None].expand(-1, -1, x.shape[2])
        new = self.layer(x.gather(1, at)) * torch.sigmoid(score.gather(1, top))[..., None]
        return torch.zeros_like(x).scatter(1, at, new)


class BatchNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class Scaled(nn.Module):
    """A linear layer whose input is rounded to 16 bits after a division by its largest value: of all tokens, or of each token."""

    def __init__(self, width, shared=False):
        super().__init__()
        self.layer, self.shared = nn.Linear(width, width), shared

    def forward(self, x):
        scale = x.abs().amax(None if self.shared else -1, keepdim=True) if not self.shared else x.abs().amax((1, 2), keepdim=True)
        return self.layer((x / scale * 7.3).to(torch.bfloat16).to(x.dtype) * scale / 7.3)


class Unordered(nn.Module):
    """A linear layer whose sum has another order in each call, as with atomic additions."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        order = torch.tensor(sorted(range(x.shape[2]), key=lambda _: os.urandom(4)))
        out = torch.zeros_like(x)
        for i in order.tolist():
            out = out + x[..., i, None] * self.layer.weight[:, i]
        return out + self.layer.bias


class Twice(nn.Module):
    """Calls one mixer twice."""

    def __init__(self, mixer):
        super().__init__()
        self.mixer = mixer

    def forward(self, x):
        return self.mixer(torch.tanh(self.mixer(x)))


class Checkpointed(nn.Module):
    def __init__(self, mixer):
        super().__init__()
        self.mixer = mixer

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        return checkpoint(self.mixer, x) if torch.is_grad_enabled() and x.requires_grad else self.mixer(x)


class Block(nn.Module):
    """layout: "bsh", "sbh" or "flat": how rows pass between the modules."""

    def __init__(self, mixer, width, layout, rate):
        super().__init__()
        self.before, self.mixer, self.after = nn.LayerNorm(width), mixer, nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(rate), nn.Linear(2 * width, width))
        self.layout = layout

    def forward(self, x, batch, documents=None):
        y = self.before(x)
        words = {} if documents is None else {"documents": documents}
        if self.layout == "sbh":
            y = self.mixer(y.transpose(0, 1), **words).transpose(0, 1)
        elif self.layout == "flat":
            y = self.mixer(y.reshape(batch, -1, y.shape[-1]), **words).reshape(x.shape)
        else:
            y = self.mixer(y, **words)
        x = x + y
        return x + self.feed(self.after(x))


class Model(nn.Module):
    """An embedding, blocks and a head over `vocabulary` ids. zero: the head and the last matrices are zero."""

    def __init__(self, mixers, width=16, vocabulary=29, layout="bsh", rate=0.0, zero=False, tied=False, longest=256):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(one, width, layout, rate) for one in mixers)
        self.norm, self.head, self.layout = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False), layout
        if tied:
            self.head.weight = self.embed.weight
        if zero:
            nn.init.zeros_(self.head.weight)
            for block in self.blocks:
                nn.init.zeros_(block.feed[-1].weight)

    def forward(self, tokens, documents=None):
        b, s = tokens.shape
        x = self.embed(tokens) + self.place(torch.arange(s))
        x = x.transpose(0, 1).contiguous() if self.layout == "sbh" else x.reshape(b * s, -1) if self.layout == "flat" else x
        for block in self.blocks:
            x = block(x, b, documents)
        return self.head(self.norm(x))


def seeded(seed, make, *args, **words):
    """Returns what `make` returns with this seed; the generator is as before."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make(*args, **words)


def tokens_of(seed, batch=3, length=24, vocabulary=29):
    return torch.randint(0, vocabulary, (batch, length), generator=torch.Generator().manual_seed(seed))
