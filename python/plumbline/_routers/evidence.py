"""Converts the observed operations of a router to observe_routing's arguments, or to the reason why nothing is
recorded."""

import sys

from .kept import entered, kept_choices, returned
from ..adapters import _BY_DROP_POLICY


class NotKnown(Exception):
    """The reason why a call is not recorded."""


class NotThisTime(NotKnown):
    """A reason that is not reported, because other calls of the router may be understood."""


def evidence(follower, found, outputs, shape, seen):
    """Returns observe_routing's arguments. `shape`: [a,b] of the tokens as the module got them; `seen`: [B,S] of the
    ids."""
    choice = _choice(follower, found)
    if follower.early:
        raise NotKnown("its experts ran before its gate")
    logits = choice.facts["logits"]
    if logits is None:
        raise NotKnown("its scores were changed after the choice")
    tokens = len(logits)
    known = {"mode": "train", "score_function": _function(follower, choice), **_rows(logits, shape, seen)}
    known["router_logits"] = logits
    if choice.facts["bias"] is not None:
        known.update(expert_bias=choice.facts["bias"], bias_captured=choice.facts["captured"])
    if choice.over_tokens:
        return {**known, **_experts_choose(follower, choice, tokens, outputs)}
    chosen = _indices(follower, choice, tokens, found.top_k)
    kept = kept_choices(follower, found, chosen, outputs, logits)
    known.update(topk_indices=chosen, top_k=chosen.shape[1])
    if _drawn(follower, choice, chosen, logits):
        known["randomness"] = "second-expert" if len(_argmaxes(follower, choice)) > 1 else "sampled"
    if kept is None:
        if found.limited or any(d[0] != "cumsum" for d in follower.drops):
            why = NotThisTime if follower.alike else NotKnown
            raise why("it has a capacity, but the kept choices could not be observed")
        return known
    return {**known, **_keeping(follower, found, outputs, chosen, kept, known)}


def _choice(follower, found):
    choices = [c for c in follower.choices if c.known()]
    if not follower.roots:
        raise NotKnown("its gate was not observed")
    if not choices:
        raise NotKnown(f"no choice among its {found.experts_count} experts was observed")
    if len({c.over_tokens for c in choices if not c.node.mask}) > 1:
        raise NotKnown("both tokens and experts choose")
    return next((c for c in choices if c.count == found.top_k), choices[0])


def _function(follower, choice):
    if choice.facts["function"]:
        return choice.facts["function"]
    if choice.facts["scored"] or choice.facts["bias"] is not None or len(follower.functions) != 1:
        return None
    return next(iter(follower.functions))  # the router applied this function after the choice


# ---- the sequences of the rows ------------------------------------------------------------------


def _rows(like, shape, seen):
    """Returns sequence_id and position, if the shapes allow only one interpretation."""
    tokens = len(like)
    if seen is None or seen[0] * seen[1] != tokens:
        return {}
    batch, length = seen
    row = sys.modules["torch"].arange(tokens, device=like.device)
    turned = shape is not None and tuple(shape) == (length, batch)
    if turned and batch == length and batch > 1:
        return {}  # the shape may be [B,S] or [S,B]
    if shape is not None and tuple(shape) not in ((batch, length), (length, batch)):
        return {}
    if turned and batch != length:
        return {"sequence_id": row % batch, "position": row // batch, "flatten": "seq-major"}
    return {"sequence_id": row // length, "position": row % length, "flatten": "batch-major"}


# ---- the choice ---------------------------------------------------------------------------------


def _argmaxes(follower, choice):
    """Returns the choices of one call. If each choice takes one expert, there are several: the second takes the best
    expert after the first one was masked."""
    if choice.count != 1:
        return [choice]
    return [choice] + [c for c in follower.choices if c is not choice and c.count == 1 and not c.over_tokens and c.node.mask]


def _indices(follower, choice, tokens, top_k):
    torch = sys.modules["torch"]
    taken = _argmaxes(follower, choice)
    follower.taken = taken[:top_k] if len(taken) > 1 else taken
    columns = [c.indices.movedim(c.dim, -1).reshape(tokens, -1) for c in follower.taken]
    chosen = torch.cat(columns, dim=1)
    if top_k is not None and chosen.shape[1] != top_k:
        raise NotKnown(f"its top-k is {top_k}, and {chosen.shape[1]} were taken")
    return chosen


def _drawn(follower, choice, chosen, logits):
    """Returns whether noise that is not in the recorded scores decided a choice."""
    if choice.op == "multinomial":
        return True
    later = [c for c in _argmaxes(follower, choice)[1:] if c.facts["drawn"]]
    if not later and not (choice.node.drawn and not choice.facts["drawn"]):
        return False
    best = logits.topk(chosen.shape[1], dim=-1).indices
    return not bool((best.sort(-1).values == chosen.sort(-1).values).all())


def _experts_choose(follower, choice, tokens, outputs):
    torch, node = sys.modules["torch"], choice.node
    if len(choice.layout) > 3 or choice.indices.dim() != len(choice.layout):
        raise NotKnown("experts choose in an unknown layout")
    chosen = torch.zeros(choice.layout, dtype=torch.bool, device=choice.indices.device)
    chosen.scatter_(choice.dim, choice.indices, True)
    experts = choice.layout[node.axis]
    chosen = chosen.movedim(node.axis, -1).reshape(-1, experts)
    if not _came_true(follower, choice, chosen, outputs):
        raise NotKnown("top-k over the tokens was observed, but not whether the experts got these tokens")
    pools = _pools(choice.layout, node.axis, choice.dim, choice.indices)
    share = experts * choice.count * int(pools.max() + 1) / tokens
    return {"routing_map": chosen, "pool_id": pools, "pool": "microbatch",
            "top_k": max(1, round(share)), "capacity": choice.count, "policy": "expert-choice"}  # fmt: skip


def _came_true(follower, choice, chosen, outputs):
    """Returns whether the experts, or the caller of the router, got the chosen tokens."""
    torch = sys.modules["torch"]
    for seen in (entered(follower, chosen, outputs), returned(outputs, chosen)):
        if seen is not None:
            return torch.equal(seen, chosen)
    return any(o.shape == choice.indices.shape and torch.equal(o.detach(), choice.indices) for o in outputs["inner"])


def _pools(layout, axis, dim, like):
    """Returns [T]: rows of one pool are those along `dim`, for each position of the other axes except the experts'."""
    torch = sys.modules["torch"]
    others = [size for d, size in enumerate(layout) if d not in (axis, dim)]
    count = 1
    for size in others:
        count *= size
    numbers = torch.arange(count, device=like.device).reshape(others)
    shape = [1 if d == dim else size for d, size in enumerate(layout) if d != axis]
    full = [size for d, size in enumerate(layout) if d != axis]
    return numbers.reshape(shape).expand(full).reshape(-1).clone()


# ---- capacity and pools --------------------------------------------------------------------------


def _keeping(follower, found, outputs, chosen, kept, known):
    torch = sys.modules["torch"]
    wanted = torch.zeros_like(kept).scatter_(1, chosen, True)
    if bool((kept & ~wanted).any()):
        return {"routing_map": kept}
    kept_facts = {"keep_mask": kept.gather(1, chosen)}
    capacity, source = _capacity(follower, found, outputs, kept)
    refused = wanted & ~kept
    pools = _pool_of(follower, known, kept, refused, capacity)
    if capacity is None and bool(refused.any()):
        pools = torch.zeros(len(kept), dtype=torch.long, device=kept.device) if pools is None else pools
        capacity, source = _one_count(kept, refused, pools), "inferred"
    elif capacity not in (None, "none") and not _fits(kept, refused, capacity, pools):
        capacity = source = pools = None  # it is not the capacity, or not that of these rows
    if capacity is not None:
        kept_facts.update(capacity=capacity, capacity_source=source)
    if pools is not None and capacity != "none":
        kept_facts.update(pool_id=pools, pool="microbatch")
    policy, randomness = _policy(follower, found, chosen)
    return {**kept_facts, **({"policy": policy} if policy else {}), **({"randomness": randomness} if randomness else {})}


def _capacity(follower, found, outputs, kept):
    """Returns a number that the router itself used."""
    if found.places == "none":
        return "none", None
    counts = {count for name, count, *_ in follower.drops if name == "topk" and isinstance(count, int)}
    if len(counts) == 1:
        return counts.pop(), "declared"
    for one in outputs["inner"]:
        if one.dim() == 3 and tuple(one.shape[:2]) == tuple(kept.shape) and one.dtype is sys.modules["torch"].bool:
            return int(one.shape[2]), "declared"
    return (found.places, "declared") if found.places else (None, None)


def _one_count(kept, refused, pools):
    """Returns the number of tokens that every refusing expert holds in its pool, if it is the same for all and no
    expert holds more."""
    held, left = _cells(kept, pools), _cells(refused, pools)
    most = int(held.max())
    return most if bool((held[left > 0] == most).all()) else None


def _cells(assigned, pools):
    """Returns [pools,E]: the count of each expert in each pool."""
    torch = sys.modules["torch"]
    out = torch.zeros(int(pools.max()) + 1, assigned.shape[1], dtype=torch.long, device=assigned.device)
    return out.index_add_(0, pools, assigned.long())


def _pool_of(follower, known, kept, refused, capacity):
    """Returns the pool of each row, [T]: by the axis along which places were counted; else by the pools in which the
    capacity fits."""
    torch = sys.modules["torch"]
    whole = torch.zeros(len(kept), dtype=torch.long, device=kept.device)
    for _, _, dim, layout, axis, _, _ in follower.drops:
        if len(layout) == 2:
            return whole
        if len(layout) == 3 and layout[axis] == kept.shape[1]:
            pools = _pools(layout, axis, dim, kept)
            if len(pools) == len(kept):
                return pools
    if capacity in (None, "none") or not bool(refused.any()):
        return None
    tried = [whole] + ([known["sequence_id"]] if "sequence_id" in known else [])
    fitting = [pools for pools in tried if _fits(kept, refused, capacity, pools)]
    return fitting[0] if len(fitting) == 1 else None


def _fits(kept, refused, capacity, pools):
    """Returns whether no expert holds more than `capacity` tokens in a pool, and every expert that refuses holds
    exactly that many."""
    if pools is None:
        return not bool(refused.any()) and int(kept.sum(dim=0).max()) <= capacity
    held, left = _cells(kept, pools), _cells(refused, pools)
    return bool((held <= capacity).all()) and bool((held[left > 0] == capacity).all())


def _policy(follower, found, chosen):
    """Returns (policy, randomness): how full experts refuse, if an operation shows it."""
    named = _BY_DROP_POLICY.get(found.drop_policy)
    ranked = [d for d in follower.drops if d[0] in ("topk", "sort", "argsort")]
    if any(d[6] for d in ranked):
        return "random-capacity", "token-selection"
    if named is not None and ranked:
        return named, None
    if any(d[5] for d in ranked):
        return "score-capacity", None
    if not ranked and follower.drops and chosen.shape[1] == 1:
        return "fifo-capacity", None
    return None, None
