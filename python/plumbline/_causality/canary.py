"""causality/random-token-canary: no causal model predicts uniform random tokens better than chance."""

import math

import torch

from .runs import select
from .verdict import Finding

_EVIDENCE = 1e6  # a product of V·q(token) that a causal model exceeds with a probability of at most 1e-6


def check_canary(owner):
    """The product of V·q(next token) over rows has an expectation of at most 1, because each factor's is the sum of q."""
    case, runs = owner.case, owner.runs
    ids = owner.suffixes._ids
    if runs.axes.flat or runs.axes.shift > 0 or case.may.lookahead or ids < 2:
        return
    generator = torch.Generator().manual_seed(case.seed + 271)
    tokens = torch.randint(0, ids, case.tokens.shape, generator=generator).to(case.tokens)
    out = select(runs.whole(tokens), case.which)
    values = runs.rows_of(out.detach())
    if values.shape[-1] < ids or values.is_complex():
        return  # not logits over the vocabulary
    n = min(values.shape[1], case.length - 1)
    chance = torch.log_softmax(values[:, :n].double(), -1).gather(2, tokens[:, 1 : n + 1, None]).squeeze(2)
    live = ~case.padding[:, 1 : n + 1]
    if not bool(chance.isfinite().all()):
        return
    gain = (chance + math.log(ids))[live]
    evidence, mean = float(gain.sum()), float(-chance[live].mean())
    if evidence >= math.log(_EVIDENCE):
        owner.verdict.add(Finding("causality/random-token-canary", "error", "bounded", "better-than-chance",
                                  f"uniform random tokens have a cross-entropy of {mean:.4f}, below log V = {math.log(ids):.4f}, over {gain.numel()} rows "
                                  f"(by chance with a probability of at most {math.exp(-evidence):.1e})",
                                  "find the leak in the report of causality/future-influence, or in the labels", measured=mean,
                                  threshold=math.log(ids)))  # fmt: skip
