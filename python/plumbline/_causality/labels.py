"""causality/label-shift: which token does the loss of each row ask for?"""

import torch

from .axes import flat_rows
from .runs import select
from .verdict import Finding

_SHIFTS = range(-1, 4)
_SHARE = 0.99  # of the live rows that must agree
_FEW = 16  # live rows


def check_labels(owner):
    """Reads the label of each row from the gradient of the loss at the logits: it is the only negative one."""
    case = owner.case
    if case.labels is None:
        return
    labels = case.tokens.clone() if isinstance(case.labels, str) else torch.as_tensor(case.labels).to(case.tokens.device)
    logits, loss = _outputs(owner, labels)
    if logits is None or loss is None or not logits.requires_grad:
        owner.verdict.reason("no-logits", "the logits are not materialised, or the loss does not follow from them", "label-shift")
        return
    if _moves_logits(owner, labels, logits):
        return
    (slope,) = torch.autograd.grad(loss, [logits], allow_unused=True)
    if slope is None:
        owner.verdict.reason("no-logits", "the loss does not follow from the judged output", "label-shift")
        return
    _judge(owner, flat_rows(slope, owner.runs.axes, case.batch, case.length).cpu())


def _outputs(owner, labels):
    """Returns (logits, loss) of a pass with gradients."""
    case, runs = owner.case, owner.runs
    if case.loss is not None:
        out = runs.whole(case.tokens, grad=True)
        logits = select(out, case.which)
        return logits, case.loss(out, labels)
    out = runs.whole(case.tokens, inputs={**case.inputs, "labels": labels}, grad=True)
    loss = out.get("loss") if isinstance(out, dict) else getattr(out, "loss", None)
    return select(out, case.which), loss


def _moves_logits(owner, labels, logits):
    """Adds a finding if other labels alone move a logit."""
    case = owner.case
    if case.loss is not None:
        return False
    other = labels.roll(1, -1)
    again = select(owner.runs.whole(case.tokens, inputs={**case.inputs, "labels": other}, grad=True), case.which)
    if again.shape != logits.shape or not bool(((again != logits) & ~(again.isnan() & logits.isnan())).any()):
        return False
    owner.verdict.add(Finding("causality/label-shift", "error", "proved", "labels-move-logits",
                              "logits moved when only the labels were replaced", "keep the labels out of the forward pass before the loss"))  # fmt: skip
    return True


def _judge(owner, slope):
    case = owner.case
    label, lowest = slope.argmin(2), slope.amin(2)
    live = lowest < 0
    tokens, n = case.tokens.cpu(), slope.shape[1]
    if int(live.sum()) < _FEW:
        owner.verdict.reason("few-labels", f"{int(live.sum())} rows have a label; expected at least {_FEW}", "label-shift")
        return
    shares = {}
    for shift in _SHIFTS:
        at = torch.arange(n) + shift
        fits = (at >= 0) & (at < case.length)
        target = tokens[:, at.clamp(0, case.length - 1)]
        known = live & fits
        shares[shift] = float((label == target)[known].float().mean()) if bool(known.any()) else 0.0
    best = max(shares, key=lambda s: (shares[s], -abs(s - 1)))
    if shares[1] >= _SHARE:
        return
    if shares[best] >= _SHARE:
        what = "its own token" if best == 0 else "the token before it" if best < 0 else f"the token {best} positions later"
        cause = {0: "not-shifted", 2: "shifted-twice"}.get(best, "other-shift")
        owner.verdict.add(Finding("causality/label-shift", "error", "proved", cause,
                                  f"the loss of a row asks for {what} in {100 * shares[best]:.3g} % of {int(live.sum())} rows; expected the next token",
                                  "shift the labels by one token, at one place only (the data or the model)", measured=float(best), threshold=1.0))  # fmt: skip
        return
    owner.verdict.reason("labels-differ", f"labels equal the next token in {100 * shares[1]:.3g} % of the rows, and no other token more often", "label-shift")
