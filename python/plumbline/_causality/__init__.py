"""check_causality: does an output row of a torch model depend on a token that it must not see?"""

import os
import sys

from .verdict import CausalityError, CausalityVerdict, disabled

__all__ = ["CausalityError", "CausalityVerdict", "check_causality"]


def check_causality(model, tokens, **options):
    """Returns a CausalityVerdict. Runs `model` on variations of `tokens`, and restores its state and the generators.

    model       a torch.nn.Module, or a function of the tokens that calls one
    tokens      integer tensor [B,S]; or a batch of transformers: a dictionary with input_ids
    inputs      dictionary of further arguments by keyword, which stay as they are (attention_mask, position_ids, …)
    argument    the keyword of the tokens (default: the first positional argument, or input_ids of a dictionary)
    output      which output is judged: a name, an index or a function (default: logits, or the first tensor)
    mode        "train", "eval" or "both" (default: the mode that the model is in)
    documents   integer tensor [B,S]: the document of each token (default: from position_ids or cu_seqlens in `inputs`)
    padding     bool tensor [B,S], True at padding (default: from attention_mask in `inputs`)
    allowed     intended dependence on later tokens: a number of prefix tokens that see each other, a list of spans
                (first, last), or a bool tensor [S,S], True if row i may follow token j
    lookahead   number of later tokens that a row may follow (multi-token-prediction modules)
    vocabulary  number of token ids (default: from the model's embedding)
    labels      integer tensor, or "tokens" for a copy of the tokens: also checks the shift of the labels
    loss        function of (output, labels) that returns the loss (default: the model's own, with labels=)
    extras      which other checks run: a set of "batch", "documents", "labels", "length", "canary", "cache"
                (default: all that apply)
    trials      smallest number of perturbations (default 64)
    budget_s    time limit in seconds of the search (default: none)
    seed        seed of the replaced tokens
    """
    if os.environ.get("PLUMBLINE_DISABLE", "0") not in ("", "0"):
        return disabled()
    if sys.modules.get("torch") is None:
        raise CausalityError("torch is not imported; expected a torch model")
    from .check import check

    return check(model, tokens, **options)
