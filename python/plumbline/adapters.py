"""Converts the results of public trainers' routers to the arguments of observe_routing.

Each function is pure: tensors in, a dictionary of observe_routing's arguments out. A tensor is copied only to be rearranged.

    run.observe_routing("layers.3", **adapters.megatron(logits, routing_map, probs, top_k=2,
                                                        sequences=batch_size, capacity=capacity))

Rows. Trainers flatten the tokens of B sequences of S tokens each in one of two orders: *seq-major*, row = s*B + b
(Megatron-LM keeps [S,B,...]), or *batch-major*, row = b*S + s. The functions derive sequence_id and position from it;
rows that hold several documents (packing), or a slice of each sequence (context parallelism), need `sequence_id` and
`position` [T] from you, in the rows' order.

Pools. Each of these routers fills its experts' places from the rows of one call on one rank, so the
whole call is recorded as one pool, unless you pass `pool_id` [T].

Capacity and policy are recorded as the router's configuration has them: a finding is proved only if the number of
places is from the configuration, not from a count.
"""


_BY_DROP_POLICY = {"probs": "score-capacity", "position": "fifo-capacity"}


def _rows(tensor):
    """Returns [..., E] as [T,E]."""
    return tensor.reshape(-1, tensor.shape[-1])


def _places(like, rows, sequences, seq_major):
    """Returns sequence_id and position of `rows` rows of `sequences` equally long sequences."""
    if sequences < 1 or rows % sequences:
        raise ValueError(f"sequences is {sequences}; expected a divisor of the {rows} rows")
    row = like.new_ones(rows).long().cumsum(0) - 1
    if seq_major:
        return {"sequence_id": row % sequences, "position": row // sequences}
    length = rows // sequences
    return {"sequence_id": row // length, "position": row % length}


def _call(like, rows, sequences, seq_major, sequence_id, position, pool_id):
    """Returns the arguments that describe rows, the same for every adapter."""
    if (sequence_id is None) != (position is None):
        raise ValueError("sequence_id and position: expected both or neither")
    out = {"flatten": "seq-major" if seq_major else "batch-major", "pool": "microbatch"}
    if sequence_id is not None:
        out.update(sequence_id=sequence_id.reshape(-1), position=position.reshape(-1))
    elif sequences is not None:
        out.update(_places(like, rows, sequences, seq_major))
    out["pool_id"] = like.new_zeros(rows).long() if pool_id is None else pool_id.reshape(-1)
    return out


def _capacity(places):
    """Returns a number of the configuration, or the word for none."""
    return {"capacity": "none"} if places is None else {"capacity": int(places),
                                                        "capacity_source": "declared"}


def _given(**values):
    return {name: value for name, value in values.items() if value is not None}


def megatron(logits, routing_map, probs=None, *, top_k, sequences=None, capacity=None,
             score_function="softmax", expert_bias=None, num_groups=None, group_topk=None,
             sequence_id=None, position=None, pool_id=None, padding_mask=None,
             drop_policy=None, load_balancing=None, mode="train"):  # fmt: skip
    """Megatron-LM's TopKRouter.

    logits       [S,B,E] or [S*B,E], of the gating layer, before anything is added or scored
    routing_map  [S*B,E] bool, as the router returns it: after capacity. Without probs it must not
                 be padded to capacity
    probs        [S*B,E], as returned; a map padded to capacity has true entries of probability zero
                 here, which are no admissions
    sequences    B, the sequences of the micro-batch; rows are seq-major (taken from [S,B,E] logits)
    capacity     places of an expert: megatron_capacity(...); None: no capacity factor is set
    score_function, expert_bias, num_groups, group_topk   as in the transformer config. Groups rank
                 by the sum of their top_k / group_topk best scores: only 1 or 2 can be declared
    drop_policy  --moe-token-drop-policy: "probs" or "position"
    load_balancing   --moe-router-load-balancing-type, if it decides the choice: "sinkhorn"
    """
    if sequences is None and logits.ndim == 3:
        sequences = logits.shape[1]
    rows = _rows(logits)
    out = _call(rows, len(rows), sequences, True, sequence_id, position, pool_id)
    out.update(router_logits=rows, routing_map=routing_map.reshape(len(rows), -1), top_k=top_k,
               score_function=score_function, mode=mode, **_capacity(capacity))  # fmt: skip
    out.update(_given(policy=_megatron_policy(capacity, drop_policy, load_balancing, mode)))
    if num_groups:
        forming = top_k // group_topk
        if forming not in (1, 2):
            raise ValueError(f"groups rank by the sum of {forming} scores; expected 1 or 2")
        out.update(groups=num_groups, top_groups=group_topk,
                   group_score="max" if forming == 1 else "sum2")  # fmt: skip
    # Megatron's bias is updated at the end of a step, from earlier batches.
    bias = {} if expert_bias is None else {"expert_bias": expert_bias, "bias_captured": "before"}
    return {**out, **bias, **_given(probs=None if probs is None else probs.reshape(len(rows), -1),
                                    padding_mask=padding_mask)}  # fmt: skip


def _megatron_policy(capacity, drop_policy, load_balancing, mode):
    if load_balancing == "sinkhorn" and mode == "train":
        return "balanced-assignment"
    if capacity is None:
        return "token-choice"
    return _BY_DROP_POLICY.get(drop_policy)


def megatron_capacity(tokens, experts, top_k, capacity_factor):
    """Returns the places of an expert among `tokens` rows of one rank: ceil(tokens*top_k/experts * factor)."""
    exact = tokens * top_k / experts * capacity_factor
    return int(exact) + (exact > int(exact))


def deepspeed(logits, combine_weights, dispatch_mask, *, top_k, sequences=None, seq_major=False,
              drop_tokens=True, use_rts=False, sampled_second=None, drop_policy=None,
              sequence_id=None, position=None, pool_id=None, mode="train"):  # fmt: skip
    """DeepSpeed's TopKGate.

    logits           [T,E] of the gate
    combine_weights  [T,E,C] and
    dispatch_mask    [T,E,C] bool, as returned (exp_counts, the choices before capacity, adds nothing
                     to them); C is the number of places
    seq_major        whether the layer was given [S,B,M] (Megatron-DeepSpeed) and not [B,S,M]
    drop_tokens      False: C was made large enough for all
    use_rts          random token selection, which top-1 gating has on by default in training
    sampled_second   whether the second expert is drawn with noise (top-2 gating's default in
                     training); None: top_k == 2 and mode "train"
    drop_policy      topkgating's, of more than two choices: "probs" or "position", if known
    """
    rows = _rows(logits)
    out = _call(rows, len(rows), sequences, seq_major, sequence_id, position, pool_id)
    if sampled_second is None:
        sampled_second = top_k == 2 and mode == "train"
    random = "second-expert" if sampled_second else "token-selection" if use_rts else None
    if not drop_tokens:
        policy = "token-choice"
    elif top_k == 1:
        policy = "random-capacity" if use_rts else "fifo-capacity"
    elif top_k == 2:
        policy = "rank-major-capacity"
    else:  # more than two choices have a drop policy of their own
        policy = _BY_DROP_POLICY.get(drop_policy)
    out.update(router_logits=rows, routing_map=dispatch_mask.any(dim=2),
               probs=combine_weights.sum(dim=2), top_k=top_k, score_function="softmax",
               mode=mode, **_capacity(dispatch_mask.shape[2] if drop_tokens else None))  # fmt: skip
    return {**out, **_given(randomness=random, policy=policy)}


def tutel(scores, critical_data, *, sequences=None, seq_major=False, sequence_id=None,
          position=None, pool_id=None, batch_prioritized_routing=None,
          mode="train"):  # fmt: skip
    """Tutel's extract_critical: the routing that its dispatcher is given.

    scores         [T,E] after the softmax, as given to it
    critical_data  (experts, indices, locations, gates, capacity, ...): for each of k choices
                   a tensor [T] of experts, of places taken there, and of gate values. A choice
                   whose place is not below the capacity is dropped
    batch_prioritized_routing   as the gate was made, if known
    """
    experts, indices, locations, _, capacity = critical_data[:5]
    rows = _rows(scores)
    if int(experts) != rows.shape[1]:
        raise ValueError(f"critical_data is of {int(experts)} experts; "
                         f"scores have {rows.shape[1]}")  # fmt: skip
    chosen = indices[0].new_empty((len(rows), len(indices)))
    place = locations[0].new_empty(chosen.shape)
    for choice, (expert, location) in enumerate(zip(indices, locations)):
        chosen[:, choice] = expert
        place[:, choice] = location
    out = _call(rows, len(rows), sequences, seq_major, sequence_id, position, pool_id)
    out.update(router_scores=rows, topk_indices=chosen, keep_mask=place < int(capacity),
               top_k=len(indices), score_function="softmax", mode=mode,
               **_capacity(capacity))  # fmt: skip
    if batch_prioritized_routing is None:
        return out
    in_order = "fifo-capacity" if len(indices) == 1 else "rank-major-capacity"
    return {**out, "policy": "score-capacity" if batch_prioritized_routing else in_order}


def huggingface(router_logits, *, top_k, selected_experts=None, attention_mask=None,
                sequences=None, sequence_id=None, position=None, mode=None):  # fmt: skip
    """Mixtral, Qwen-MoE and other dropless blocks of Hugging Face transformers: one call a layer.

    router_logits     the model output's tuple: [B*S,E] a layer, batch-major (output_router_logits)
    selected_experts  [B*S,k] a layer, what each block chose (a forward hook on the block, or on its
                      gate where that returns them). The logits alone do not show what was done with
                      them: without it the call is recorded, and judged inconclusive
    attention_mask    [B,S], 0 = padding, on either side
    Returns a list of dictionaries. Renormalising the k gate values, as these blocks do, changes no
    choice.
    """
    calls = []
    if attention_mask is not None:
        sequences = attention_mask.shape[0]
    for layer, logits in enumerate(router_logits):
        rows = _rows(logits)
        out = _call(rows, len(rows), sequences, False, sequence_id, position, None)
        del out["pool"], out["pool_id"]  # no tokens compete for places
        out.update(router_logits=rows, top_k=top_k, score_function="softmax", capacity="none",
                   policy="token-choice")  # fmt: skip
        if attention_mask is not None:
            out["padding_mask"] = (attention_mask == 0).reshape(-1)
        if selected_experts is not None:
            out["topk_indices"] = selected_experts[layer].reshape(len(rows), top_k)
        calls.append({**out, **_given(mode=mode)})
    return calls
