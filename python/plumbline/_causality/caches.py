"""Decoding with a key-value cache, compared with the full pass, in double."""

import inspect

from .rounding import LEAK, message_of
from .runs import distances, select
from .verdict import Finding

_STEPS = 6  # tokens that are decoded one by one
_NAMES = ("cache", "past_key_values", "cache_params")  # arguments of transformers, newest first


def _name(module):
    """Returns the argument with which the model takes its cache, or None."""
    try:
        known = inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        return None
    return next((one for one in _NAMES if one in known), None)


def check_cache(owner):
    """For models of transformers: a prefix at once, then some tokens one by one. The rows must be those of a full pass."""
    case, runs = owner.case, owner.runs
    if case.model is not case.module or case.length < 4 or not hasattr(case.module, "config") or _name(case.module) is None:
        return
    if set(case.inputs) - {"attention_mask"} or bool(case.padding.any()):
        return  # further arguments would have to grow with the tokens
    if owner.verdict.findings and owner.verdict.level != "note":
        return
    modes, runs.modes = runs.modes, []
    training = [(one, one.training) for one in case.module.modules()]
    try:
        for one, _ in training:
            one.training = False
        _compare(owner)
    finally:
        runs.modes = modes
        for one, mode in training:
            one.training = mode


def _compare(owner):
    case, runs = owner.case, owner.runs
    steps = min(_STEPS, case.length // 2)
    first = case.length - steps
    whole = runs.rows(case.tokens, wide="all")
    model = runs.model
    outputs, name = [], _name(case.module)

    def step(tokens, **words):
        return model(tokens, **words) if case.argument is None else model(**{case.argument: tokens}, **words)

    def decode(tokens, **words):
        out = step(tokens[:, :first], use_cache=True)
        outputs.append(select(out, case.which)[:, -1])
        for at in range(first, case.length - 1):
            cache = getattr(out, name, None)
            if cache is None:
                return out
            out = step(tokens[:, at : at + 1], use_cache=True, **{name: cache})
            outputs.append(select(out, case.which)[:, -1])
        return out

    runs.model, argument, runs.argument = decode, runs.argument, None
    try:
        runs.whole(case.tokens, wide="all")
    except Exception as error:
        owner.verdict.reason("cache-not-run", message_of(error), "cache")
        return
    finally:
        runs.model, runs.argument = model, argument
    if len(outputs) < 2:
        return  # the model keeps no cache
    for at, row in enumerate(outputs):
        far = float(distances(whole[:, first - 1 + at : first + at], row[:, None].flatten(2)).max())
        if not far <= LEAK:
            where = "the prefix" if at == 0 else f"step {at} of decoding (position {first + at - 1})"
            owner.verdict.add(Finding("causality/length-dependence", "warning", "proved", "cache",
                                      f"logits of {where} differ by {far:.1e} from those of the full pass; the steps before agree",
                                      "compare the positions and the mask that a step of decoding uses with those of the full pass",
                                      measured=far, threshold=LEAK))  # fmt: skip
            return
    owner.verdict.notes.append(f"{len(outputs) - 1} steps of decoding with the cache equal the full pass")
