"""Four ways to send tokens to experts. Three of them have a flaw that no loss curve shows.

  dropless       each token takes its k best experts, however many others do       (clean)
  fifo           experts hold C tokens; first come, first served                   (batch-dependent)
  score-drop     experts hold C tokens and keep those with the best scores         (sees the future)
  expert-choice  each expert takes the C tokens with the best scores               (sees the future)

Under score-drop and expert-choice, a token that comes later in the text can displace an earlier one from an expert. The
earlier token's output then depends on text that it must not know. What the model learns from that is not available when
it generates text.

All work on one pool: the T tokens of one rank's micro-batch compete for the same places.
"""

import dataclasses
import math
from typing import Optional

import torch

POLICIES = ("dropless", "fifo", "score-drop", "expert-choice")
CAUSAL = ("dropless", "fifo")  # later tokens of a sequence change nothing for earlier ones


@dataclasses.dataclass
class Routing:
    """The result of one router call over T tokens and E experts."""

    logits: torch.Tensor               # [T, E] the gate's output, in its own precision
    scores: torch.Tensor               # [T, E] fp32 softmax of the logits, used for the choice
    assigned: torch.Tensor             # [T, E] bool: this expert computes this token
    indices: Optional[torch.Tensor]    # [T, k] int64, best first; None if experts choose
    keep: Optional[torch.Tensor]       # [T, k] bool, False = refused; None if experts choose
    top_k: int
    capacity: Optional[int]            # tokens per expert; None = no limit
    policy: str
    normalised: bool                   # whether a token's weights are shares of its own choice

    @property
    def weights(self):
        """Returns [T, E] factors of each expert's output. Gradients reach the gate here."""
        chosen = self.scores * self.assigned
        if not self.normalised:
            return chosen
        # Normalised over the token's own choice, kept or not: a refused share is lost.
        own = torch.zeros_like(self.scores).scatter(1, self.indices, 1.0)
        return chosen / (self.scores * own).sum(dim=1, keepdim=True)

    @property
    def dropped(self):
        """Returns the share of the T*k choices that were refused."""
        return 0.0 if self.keep is None else 1.0 - self.keep.double().mean().item()


def expert_capacity(tokens, experts, top_k, factor):
    """Returns C = ceil(factor * k * T / E): `factor` times the tokens per expert in perfect balance."""
    return max(1, min(tokens, math.ceil(factor * top_k * tokens / experts)))


def normalises(policy):
    """Returns whether weights are shares of the token's own choice. If experts choose, it has none."""
    return policy != "expert-choice"


def route(policy, logits, top_k, capacity_factor=1.0, normalised=None):
    """Sends each of T tokens to experts by the named policy. logits [T, E], any float dtype.

    normalised: the policy's default, unless weights that were trained the other way are used
    """
    if policy not in POLICIES:
        raise ValueError(f"router is {policy!r}; expected one of {', '.join(POLICIES)}")
    tokens, experts = logits.shape
    if not 1 <= top_k <= experts:
        raise ValueError(f"top_k is {top_k}; expected 1 to {experts}, the number of experts")
    scores = torch.softmax(logits.float(), dim=1)
    capacity = expert_capacity(tokens, experts, top_k, capacity_factor)
    if normalised is None:
        normalised = normalises(policy)
    if policy == "expert-choice":
        if normalised:
            raise ValueError("expert-choice has no choice of the token's to normalise over")
        assigned = _experts_choose(scores, capacity)
        return Routing(logits, scores, assigned, None, None, top_k, capacity, policy, False)

    indices = torch.topk(logits.float(), top_k, dim=1).indices
    if policy == "dropless":
        keep, capacity = torch.ones_like(indices, dtype=torch.bool), None
    elif policy == "fifo":
        keep = _keep_first(indices, experts, capacity)
    else:
        keep = _keep_best(indices, scores, capacity)
    assigned = torch.zeros_like(scores, dtype=torch.bool).scatter(1, indices, keep)
    return Routing(logits, scores, assigned, indices, keep, top_k, capacity, policy, normalised)


def _keep_first(indices, experts, capacity):
    """Makes each expert keep the first C tokens that request it, in row order."""
    requests = indices.new_zeros(len(indices), experts).scatter(1, indices, 1)
    served_before = requests.cumsum(dim=0) - requests
    return served_before.gather(1, indices) < capacity


def _keep_best(indices, scores, capacity):
    """Makes each expert keep the C tokens with the best scores among those that request it."""
    requests = torch.zeros_like(scores, dtype=torch.bool).scatter(1, indices, True)
    ranked = scores.detach().masked_fill(~requests, -1.0)
    order = torch.sort(ranked, dim=0, descending=True, stable=True).indices
    place = torch.empty_like(order).scatter(
        0, order, torch.arange(len(scores), device=order.device).unsqueeze(1).expand_as(order))
    return place.gather(1, indices) < capacity


def _experts_choose(scores, capacity):
    """Makes each expert take the C best of all tokens."""
    order = torch.sort(scores.detach(), dim=0, descending=True, stable=True).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(0, order[:capacity], True)
