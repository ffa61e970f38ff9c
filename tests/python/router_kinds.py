"""Small routers of the kinds that public trainers have, for tests. Each stores its choices and the kept ones in `true`."""

import math
import types

import torch
import torch.nn.functional as F
from torch import nn

from not_routers import Classifier, E, GatedUnit, H, SparseAttention


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3, self.w2 = nn.Linear(H, 24, bias=False), nn.Linear(H, 24, bias=False), nn.Linear(24, H, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MixtralLike(nn.Module):
    """Softmax in fp32, top-k, renormalised. Every expert gets all tokens that choose it."""

    def __init__(self, top_k=2, jitter=0.0):
        super().__init__()
        self.num_experts, self.top_k, self.jitter = E, top_k, jitter
        self.gate = nn.Linear(H, E, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(E))

    def forward(self, hidden_states):
        batch, length, width = hidden_states.shape
        x = hidden_states.view(-1, width)
        logits = self.gate(x)
        weights = F.softmax(logits, dim=1, dtype=torch.float)
        weights, chosen = torch.topk(weights, self.top_k, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(x)
        mask = F.one_hot(chosen, num_classes=E).permute(2, 1, 0)
        for expert in range(E):
            place, token = torch.where(mask[expert])
            out.index_add_(0, token, self.experts[expert](x[None, token].reshape(-1, width)) * weights[token, place, None])
        self.true = {"indices": chosen, "kept": torch.ones_like(chosen, dtype=torch.bool)}
        return out.view(batch, length, width), logits


class SwitchRouter(nn.Module):
    """Top-1 by argmax. Tokens queue within their sequence; a token that finds its expert full is dropped."""

    def __init__(self, expert_capacity):
        super().__init__()
        self.num_experts, self.expert_capacity, self.jitter_noise = E, expert_capacity, 0.0
        self.classifier = nn.Linear(H, E, bias=False)

    def forward(self, hidden_states):
        logits = self.classifier(hidden_states)
        probs = F.softmax(logits, dim=-1, dtype=torch.float).to(hidden_states.dtype)
        chosen = torch.argmax(probs, dim=-1)
        mask = F.one_hot(chosen, num_classes=self.num_experts)
        mask = mask * (torch.cumsum(mask, dim=-2) <= self.expert_capacity)
        self.true = {"indices": chosen.reshape(-1, 1), "kept": mask.gather(-1, chosen[..., None]).reshape(-1, 1).bool()}
        return mask, torch.max(probs, dim=-1).values.unsqueeze(-1), logits


class SwitchLike(nn.Module):
    def __init__(self, expert_capacity=5):
        super().__init__()
        self.router = SwitchRouter(expert_capacity)
        self.experts = nn.ModuleDict({f"expert_{i}": Expert() for i in range(E)})

    def forward(self, hidden_states):
        mask, probs, _ = self.router(hidden_states)
        out = hidden_states.clone()
        for number, expert in enumerate(self.experts.values()):
            token = mask[..., number].bool()
            out[token] = expert(hidden_states[token])
        return probs * out


class TopKGate(nn.Module):
    """DeepSpeed's shape: a dispatch mask [T,E,C], top-1 with random token selection, or top-2 rank by rank."""

    def __init__(self, k=1, capacity_factor=1.0, min_capacity=4, use_rts=False, noisy=None):
        super().__init__()
        self.wg = nn.Linear(H, E, bias=False)
        self.k, self.capacity_factor, self.min_capacity, self.use_rts, self.noisy = k, capacity_factor, min_capacity, use_rts, noisy

    def forward(self, x):
        logits = F.linear(x.float(), self.wg.weight.float())
        gates = F.softmax(logits, dim=1)
        capacity = max(math.ceil(len(x) / E * self.capacity_factor * self.k), self.min_capacity)
        first = torch.argmax(logits + torch.rand_like(logits) if self.noisy else gates, dim=1)
        masks = [F.one_hot(first, num_classes=E)]
        chosen = [first]
        if self.k == 2:
            second = torch.argmax(logits.masked_fill(masks[0].bool(), float("-inf")), dim=1)
            chosen.append(second)
            masks.append(F.one_hot(second, num_classes=E))
        places = torch.cumsum(masks[0], dim=0) - 1
        if self.k == 1:
            ranked = masks[0] * torch.rand_like(gates) if self.use_rts else masks[0]
            top = torch.topk(ranked, k=capacity, dim=0)[1]
            masks[0] = masks[0] * torch.zeros_like(masks[0]).scatter_(0, top, 1)
            places = torch.cumsum(masks[0], dim=0) - 1
        before = torch.sum(F.one_hot(first, num_classes=E), dim=0, keepdim=True)
        dispatch = torch.zeros(len(x), E, capacity, device=x.device)
        for number, mask in enumerate(masks):
            at = places if number == 0 else torch.cumsum(mask, dim=0) - 1 + before
            mask = mask * torch.lt(at, capacity)
            dispatch = dispatch + (gates * mask)[:, :, None] * F.one_hot((at * mask).clamp(max=capacity - 1), capacity) * mask[:, :, None]
        kept = dispatch.bool().any(dim=2)
        chosen = torch.stack(chosen, 1)
        self.true = {"indices": chosen, "kept": kept.gather(1, chosen)}
        return (gates.mean(0) * masks[0].float().mean(0)).sum() * E, dispatch, dispatch.bool()


class DeepSpeedLike(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.gate = TopKGate(**options)
        self.num_local_experts = E
        self.experts = nn.Module()
        self.experts.deepspeed_experts = nn.ModuleList(Expert() for _ in range(E))

    def forward(self, x):
        flat = x.reshape(-1, H)
        self.l_aux, combine, dispatch = self.gate(flat)
        given = torch.einsum("sec,sm->ecm", dispatch.type_as(flat), flat)
        given = torch.stack([expert(part) for expert, part in zip(self.experts.deepspeed_experts, given)])
        return torch.einsum("sec,ecm->sm", combine, given).reshape(x.shape)


class TopKRouter(nn.Module):
    """Megatron-LM's shape: [S,B,H] in; (probs, routing_map) [S*B,E] out."""

    def __init__(self, topk=2, capacity_factor=None, drop_policy="probs", score_function="softmax"):
        super().__init__()
        self.config = types.SimpleNamespace(moe_router_topk=topk, num_moe_experts=E, moe_token_drop_policy=drop_policy,
                                            moe_expert_capacity_factor=capacity_factor)  # fmt: skip
        self.topk, self.score_function = topk, score_function
        self.weight = nn.Parameter(torch.randn(E, H) * 0.3)
        self.register_buffer("expert_bias", torch.linspace(-0.2, 0.2, E) if score_function == "sigmoid" else None)

    def forward(self, x):
        logits = F.linear(x, self.weight).view(-1, E)
        if self.score_function == "softmax":
            scores, chosen = torch.topk(logits, k=self.topk, dim=1)
            probs = torch.softmax(scores, dim=-1, dtype=torch.float32).type_as(logits)
        else:
            scores = torch.sigmoid(logits)
            _, chosen = torch.topk(scores + self.expert_bias, k=self.topk, dim=1)
            probs = torch.gather(scores, dim=1, index=chosen)
        gates = torch.zeros_like(logits).scatter(1, chosen, probs)
        kept = torch.zeros_like(logits).int().scatter(1, chosen, 1).bool()
        if self.config.moe_expert_capacity_factor is not None:
            capacity = math.ceil(len(logits) * self.topk / E * self.config.moe_expert_capacity_factor)
            ranked = gates if self.config.moe_token_drop_policy == "probs" else kept.int()
            if self.config.moe_token_drop_policy == "probs":
                _, held = torch.topk(ranked, k=capacity, dim=0, sorted=False)
                kept = torch.logical_and(kept, torch.zeros_like(gates).scatter(0, held, 1).bool())
            else:
                kept = torch.logical_and(kept, torch.cumsum(kept.int(), dim=0) <= capacity)
            gates = gates * kept
        self.true = {"indices": chosen, "kept": kept.gather(1, chosen)}
        return gates, kept


class MegatronLike(nn.Module):
    """The experts are elsewhere, as after an all-to-all; here one matrix stands for all."""

    def __init__(self, **options):
        super().__init__()
        self.router = TopKRouter(**options)
        self.w1, self.w2 = nn.Parameter(torch.randn(E * 24, H) * 0.2), nn.Parameter(torch.randn(H, E * 24) * 0.2)

    def forward(self, x):
        turned = x.transpose(0, 1).contiguous()  # [S,B,H]
        probs, _ = self.router(turned)
        hidden = F.silu(F.linear(turned.reshape(-1, H), self.w1)).view(-1, E, 24) * probs[:, :, None]
        return F.linear(hidden.flatten(1), self.w2).view(turned.shape).transpose(0, 1)


class NoisyTopkRouter(nn.Module):
    """makeMoE's shape: adds noise of a learned size to the logits, and takes top-k of the sum."""

    def __init__(self, top_k):
        super().__init__()
        self.top_k = top_k
        self.topkroute_linear, self.noise_linear = nn.Linear(H, E), nn.Linear(H, E)

    def forward(self, x):
        logits = self.topkroute_linear(x)
        noise = torch.randn_like(logits) * F.softplus(self.noise_linear(x))
        noisy = logits + noise
        top, indices = noisy.topk(self.top_k, dim=-1)
        sparse = torch.full_like(noisy, float("-inf")).scatter(-1, indices, top)
        chosen = indices.reshape(-1, self.top_k)
        self.true = {"indices": chosen, "kept": torch.ones_like(chosen, dtype=torch.bool), "logits": noisy.reshape(-1, E)}
        return F.softmax(sparse, dim=-1), indices


class NoisyLike(nn.Module):
    def __init__(self, top_k=2, capacity_factor=None):
        super().__init__()
        self.router = NoisyTopkRouter(top_k)
        self.experts = nn.ModuleList(Expert() for _ in range(E))
        self.top_k, self.capacity_factor = top_k, capacity_factor

    def forward(self, x):
        weights, indices = self.router(x)
        out, flat, weights = torch.zeros_like(x).view(-1, H), x.reshape(-1, H), weights.view(-1, E)
        for number, expert in enumerate(self.experts):
            token = (indices == number).any(dim=-1).view(-1).nonzero().squeeze(1)
            if self.capacity_factor is not None:
                token = token[: int(len(flat) * self.top_k / E * self.capacity_factor)]
                kept = torch.zeros(len(flat), dtype=torch.bool).index_fill(0, token, True)
                at = self.router.true["indices"] == number
                self.router.true["kept"] = torch.where(at, kept[:, None], self.router.true["kept"])
            if len(token):
                out.index_add_(0, token, expert(flat[token]) * weights[token, number, None])
        return out.view(x.shape)


class ExpertChoice(nn.Module):
    """Every expert takes the C tokens with the best scores. how: "columns", "rows" ([E,T]), "sequence", "sort"."""

    def __init__(self, how="columns", capacity_factor=1.0):
        super().__init__()
        self.num_experts, self.how, self.capacity_factor = E, how, capacity_factor
        self.gate = nn.Linear(H, E, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(E))

    def _choose(self, scores, batch):
        capacity = int(len(scores) / E * self.capacity_factor)
        if self.how == "rows":
            return scores.t().topk(capacity, dim=-1).indices.t()
        if self.how == "sort":
            return torch.sort(scores, dim=0, descending=True).indices[:capacity]
        if self.how == "sequence":
            length = len(scores) // batch
            inside = scores.view(batch, length, E).topk(capacity // batch, dim=1).indices
            return (inside + torch.arange(batch)[:, None, None] * length).reshape(-1, E)
        return torch.topk(scores, capacity, dim=0).indices

    def forward(self, x):
        flat = x.reshape(-1, H)
        scores = self.gate(flat).softmax(dim=-1)
        chosen = self._choose(scores, len(x))
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token = chosen[:, number]
            out = out.index_add(0, token, expert(flat[token]) * scores[token, number, None])
        self.true = {"map": torch.zeros_like(scores, dtype=torch.bool).scatter(0, chosen, True)}
        return out.view(x.shape)


class ScoreDrop(nn.Module):
    """Top-2, and each expert keeps its best tokens: written as a loop, as in a custom trainer."""

    def __init__(self, capacity_factor=0.8):
        super().__init__()
        self.num_experts, self.top_k, self.capacity_factor = E, 2, capacity_factor
        self.gate = nn.Linear(H, E, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(E))

    def forward(self, x):
        flat = x.reshape(-1, H)
        scores = self.gate(flat).softmax(dim=-1)
        chosen = scores.topk(self.top_k, dim=-1).indices
        capacity = int(len(flat) * self.top_k / E * self.capacity_factor)
        out, kept = torch.zeros_like(flat), torch.zeros_like(scores, dtype=torch.bool)
        for number, expert in enumerate(self.experts):
            token = (chosen == number).any(dim=-1).nonzero().squeeze(1)
            token = token[scores[token, number].argsort(descending=True)[:capacity]]
            kept[token, number] = True
            out = out.index_add(0, token, expert(flat[token]) * scores[token, number, None])
        self.true = {"indices": chosen, "kept": kept.gather(1, chosen)}
        return out.view(x.shape)


class ScoreDropMap(nn.Module):
    """The same with one sort over the tokens. Returns the map."""

    def __init__(self, capacity_factor=0.8):
        super().__init__()
        self.n_routed_experts, self.top_k, self.capacity_factor = E, 2, capacity_factor
        self.gate = nn.Linear(H, E, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(E))

    def choose(self, flat):
        """Returns (scores, requested choices, kept choices)."""
        scores = self.gate(flat).softmax(dim=-1)
        chosen = scores.topk(self.top_k, dim=-1).indices
        capacity = int(len(flat) * self.top_k / E * self.capacity_factor)
        requested = torch.zeros_like(scores).scatter(1, chosen, 1.0)
        held = torch.topk(scores * requested, capacity, dim=0).indices
        kept = requested.bool() & torch.zeros_like(scores).scatter(0, held, 1.0).bool()
        self.true = {"indices": chosen, "kept": kept.gather(1, chosen)}
        return scores, requested, kept

    def forward(self, x):
        flat = x.reshape(-1, H)
        scores, _, kept = self.choose(flat)
        weights = scores * kept
        out = sum(expert(flat) * weights[:, n, None] for n, expert in enumerate(self.experts))  # all compute all
        return out.view(x.shape), kept


class GroupLimited(nn.Module):
    """DeepSeek-V3's shape: sigmoid, a stored bias, the best groups first; experts in one tensor."""

    def __init__(self):
        super().__init__()
        self.n_routed_experts, self.top_k, self.n_group, self.topk_group = E, 2, 4, 2
        self.weight = nn.Parameter(torch.randn(E, H) * 0.3)
        self.register_buffer("e_score_correction_bias", torch.linspace(-0.1, 0.1, E))
        self.gate_up_proj = nn.Parameter(torch.randn(E, H, 24) * 0.2)
        self.down_proj = nn.Parameter(torch.randn(E, 24, H) * 0.2)

    def forward(self, hidden_states):
        flat = hidden_states.view(-1, H)
        scores = F.linear(flat.float(), self.weight.float()).sigmoid()
        choice = scores.view(-1, E) + self.e_score_correction_bias.unsqueeze(0)
        groups = choice.view(-1, self.n_group, E // self.n_group).topk(2, dim=-1)[0].sum(dim=-1)
        best = torch.topk(groups, k=self.topk_group, dim=-1, sorted=False)[1]
        mask = torch.zeros_like(groups).scatter_(1, best, 1)
        mask = mask.unsqueeze(-1).expand(-1, self.n_group, E // self.n_group).reshape(-1, E)
        choice = choice.masked_fill(~mask.bool(), float("-inf"))
        chosen = torch.topk(choice, k=self.top_k, dim=-1, sorted=False)[1]
        weights = scores.gather(1, chosen)
        out = torch.zeros_like(flat)
        for expert in range(E):
            token, place = torch.where(chosen == expert)
            part = F.silu(flat[token] @ self.gate_up_proj[expert]) @ self.down_proj[expert]
            out.index_add_(0, token, part * weights[token, place, None])
        self.true = {"indices": chosen, "kept": torch.ones_like(chosen, dtype=torch.bool), "logits": choice}
        return out.view(hidden_states.shape)


class Sinkhorn(nn.Module):
    """Balanced over the batch: the choice of a token depends on the scores of other tokens."""

    def __init__(self):
        super().__init__()
        self.num_experts, self.top_k = E, 1
        self.gate = nn.Linear(H, E, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(E))

    def forward(self, x):
        flat = x.reshape(-1, H)
        logits = self.gate(flat)
        with torch.no_grad():
            cost = torch.exp(logits * 4)
            right = cost.new_ones(E)
            for _ in range(20):
                left = 1 / (cost * right).sum(1) / len(flat)
                right = 1 / (left[:, None] * cost).sum(0) / E
            chosen = (left[:, None] * cost * right).topk(1, dim=1).indices
        weights = logits.sigmoid()
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token = (chosen[:, 0] == number).nonzero().squeeze(1)
            out = out.index_add(0, token, expert(flat[token]) * weights[token, number, None])
        self.true = {"indices": chosen, "kept": torch.ones_like(chosen, dtype=torch.bool), "logits": logits}
        return out.view(x.shape)


class Model(nn.Module):
    """A causal model of two blocks around one kind."""

    def __init__(self, make, words=64, length=32, blocks=2):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, H), nn.Parameter(torch.randn(length, H) * 0.3)
        self.blocks = nn.ModuleList(make() for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(H) for _ in range(blocks))
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(H, words)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place[: tokens.shape[1]]
        for norm, block in zip(self.norms, self.blocks):
            seen = norm(x)
            seen = seen.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]  # of the past
            y = block(norm(x) + seen)
            x = x + self.drop(y[0] if isinstance(y, tuple) else y)
        return self.head(x)


KINDS = {
    "mixtral": MixtralLike, "switch": SwitchLike, "deepspeed-rts": lambda: DeepSpeedLike(use_rts=True),
    "deepspeed-top2": lambda: DeepSpeedLike(k=2), "megatron": MegatronLike,
    "megatron-probs": lambda: MegatronLike(capacity_factor=0.8), "megatron-position": lambda: MegatronLike(
        capacity_factor=0.8, drop_policy="position", topk=1), "megatron-bias": lambda: MegatronLike(score_function="sigmoid"),
    "noisy": NoisyLike, "noisy-capacity": lambda: NoisyLike(top_k=1, capacity_factor=0.8),
    "expert-choice": ExpertChoice, "expert-choice-rows": lambda: ExpertChoice("rows"),
    "expert-choice-sequence": lambda: ExpertChoice("sequence"), "expert-choice-sort": lambda: ExpertChoice("sort"),
    "score-drop": ScoreDrop, "score-drop-map": ScoreDropMap, "group-limited": GroupLimited, "sinkhorn": Sinkhorn,
    "gated-unit": GatedUnit, "sparse-attention": SparseAttention, "classifier": Classifier,
}  # fmt: skip
