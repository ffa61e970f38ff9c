"""The checks next to the trials: other sequences, packed documents, padding, labels, length, random tokens, caches."""

import torch

from .caches import check_cache
from .canary import check_canary
from .labels import check_labels
from .lengths import check_length
from .rounding import message_of

_DOCUMENTS = 8  # documents that are replaced


def run(owner):
    """Runs the checks that apply. `owner`: a ModeCheck after its trials."""
    if not hasattr(owner, "search"):
        return
    extras = owner.case.extras
    checks = {"batch": _sequences, "documents": _documents, "labels": check_labels, "length": check_length, "canary": check_canary,
              "cache": check_cache}  # fmt: skip
    for name, body in checks.items():
        if name not in extras:
            continue
        try:
            body(owner)
        except Exception as error:  # a check that does not fit the model leaves the verdict of the trials
            owner.verdict.reason("not-run", message_of(error), name)


def _sequences(owner):
    """Replaces half of the sequences, and watches the others."""
    case = owner.case
    if case.batch < 2:
        owner.verdict.reason("one-sequence", "the batch has one sequence, so the influence of others was not tested", "batch")
        return
    for half in (0, 1):
        chosen = torch.arange(case.batch) % 2 == half
        changed = chosen[:, None].expand(case.batch, case.length) & ~case.padding.cpu()
        must = ~chosen[:, None].expand(case.batch, case.length) & ~case.padding.cpu()
        tokens = owner.suffixes.at(changed, 401 + half)
        if owner.settle.probe("causality/batch-influence", "warning", "other-sequences", "tokens of other sequences", changed, tokens, must):
            return


def _documents(owner):
    case = owner.case
    live = ~case.padding.cpu()
    if case.documents is not None and case.documents.unique().numel() > 1:
        numbers = case.documents.cpu().unique().tolist()
        step = max(1, len(numbers) // _DOCUMENTS)
        for one in numbers[::step][:_DOCUMENTS]:
            changed = (case.documents.cpu() == one) & live
            must = live & ~case.may.reached_in_documents(changed) & case.may.reached(changed)
            tokens = owner.suffixes.at(changed, 811 + one)
            if owner.settle.probe("causality/packed-document-leak", "error", "other-documents", f"tokens of document {one}", changed, tokens, must):
                break
    if bool(case.padding.any()):
        tokens = owner.suffixes.at(case.padding.cpu(), 907)
        owner.settle.probe("causality/packed-document-leak", "error", "padding", "padding ids", case.padding.cpu(), tokens, live)
