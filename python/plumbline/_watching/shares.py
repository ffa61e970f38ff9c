"""If a step has several micro-batches, checks whether the loss that backward gets is the whole mean of its micro-batch. The evidence of
health/accumulation-scale, from the model's own logits and labels."""

import math
import sys

from .._gradients.leftover import few
from .._routers import after_forward
from .scaling import Scaling

_ENOUGH, _FIRST = 4, 16  # steps that are recomputed; then one each time the number of steps has doubled
_TRIED = 8  # steps of labels without logits, after which no more are expected
_CHUNK, _MOST = 1 << 22, 1 << 30  # logits that are computed at once, to limit memory; the most that are recomputed


def _value(holder, name):
    return holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)


def _mean(logits, labels):
    """Returns the mean cross-entropy over labels that are not ignored; None if there is none, or if a label is not a
    class."""
    torch = sys.modules["torch"]
    logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    valid = labels != -100
    count = int(valid.sum())
    if not count or int(labels.max()) >= logits.shape[-1] or int(labels[valid].min()) < 0:
        return None
    rows, total = max(1, _CHUNK // logits.shape[-1]), 0.0
    for first in range(0, len(labels), rows):
        part, wanted = logits[first : first + rows].float(), labels[first : first + rows].to(logits.device)
        total += float(torch.nn.functional.cross_entropy(part, wanted, ignore_index=-100, reduction="sum"))
    return total / count


class Shares:
    """The shares of one watch."""

    def __init__(self, run, model, trained, compiled):
        self._run, self._model, self._compiled = run, model, compiled
        self._parameters = few([p for _, p in trained])
        self._several, self._seen, self._tried, self._next = False, 0, 0, 0
        self._undo = None
        self._means, self._share, self._kept, self._gradients = (), None, math.nan, None

    @property
    def open(self):
        """Returns whether a micro-batch of this step was recomputed."""
        return self._share is not None

    @property
    def settled(self):
        """Returns whether no micro-batch of the next steps must be recomputed."""
        return self._undo is None or self._seen >= _ENOUGH or self._tried >= _TRIED

    def labelled(self, words):
        """Called before a forward pass that is trained on."""
        if self._undo is None and self._due() and not self._compiled and words.get("labels") is not None:
            self._undo = after_forward(self._model, self._forward)

    def _due(self):
        return self._several and self._run._step >= self._next

    def _forward(self, module, inputs, words, output):
        torch = sys.modules["torch"]
        if not (self._due() and self._share is None and module.training and torch.is_grad_enabled()):
            return
        labels, logits = words.get("labels"), _value(output, "logits")
        if not (torch.is_tensor(labels) and torch.is_tensor(logits)) or labels.is_floating_point() or logits.numel() > _MOST:
            return
        if logits.shape[:-1] != labels.shape:
            return
        with torch.no_grad():
            self._means = [_mean(logits, labels)]
            if labels.dim() > 1 and labels.shape[-1] > 1:  # causal models shift the labels
                self._means.append(_mean(logits[..., :-1, :], labels[..., 1:]))

    def backward(self, loss):
        """Called with a loss without a scaler's factor, when its backward pass begins."""
        means, self._means = [m for m in self._means if m], ()
        if means:
            self._share = min((float(loss) / m for m in means), key=lambda share: abs(share - 1))

    def backward_ends(self):
        self._gradients = self._now()

    def _now(self):
        torch = sys.modules["torch"]
        held = [p.grad.detach().reshape(-1)[:64].float() for p in self._parameters if p.grad is not None and not p.grad.is_sparse]
        return torch.cat(held) if held else None

    def before_update(self, clips):
        """Compares what the optimizer reads with what was accumulated: the result is one factor, or NaN."""
        if self._gradients is None:
            return
        before, after = self._gradients, self._now()
        if after is None or after.numel() != before.numel():
            return
        square = float((before * before).sum())
        kept = float((before * after).sum()) / square if square else math.nan
        apart = float((after - kept * before).norm()) if math.isfinite(kept) else math.nan
        if not apart <= 1e-3 * float(after.norm()):
            return
        for clip in clips:
            kept /= clip.factor() or math.nan
        scaler = Scaling.scaler() if Scaling.scales_this_step() else None
        self._kept = kept * scaler.get_scale() if scaler is not None else kept

    def step_ends(self, micro):
        """Called after an update of `micro` backward passes, in the open step."""
        self._several |= micro > 1
        share, self._share, kept, self._kept, self._gradients = self._share, None, self._kept, math.nan, None
        self._tried += self._undo is not None and micro > 1
        if share is None or micro < 2:
            return
        self._seen += 1
        if self._seen >= _ENOUGH:
            self._next = max(_FIRST, 2 * self._run._step)
        for name, value in (("micro", micro), ("share", share), ("kept", kept)):
            self._run._own_scalar(f"trained/{name}", value)

    def remove(self):
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()
