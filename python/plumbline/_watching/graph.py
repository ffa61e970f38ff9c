"""Reads the graph of a loss: its cross-entropy, the number of classes, and the tokens over which it is a mean."""

import sys

_DEEPEST, _MOST_NODES = 16, 64
_MEAN = 1  # of a reduction
_UNSHARED = 4  # steps of several passes without a cross-entropy that are recorded
_ENOUGH_PASSES = 3  # losses of a step: two may be two losses that are meant to add up
_ENOUGH = 8  # steps with several passes whose tokens are counted at any cost; later those that are whole for another reason


def cross_entropy(loss):
    """Returns the node of torch's nll_loss nearest to the loss, or None."""
    waiting, seen = [(loss.grad_fn, 0)], 0
    while waiting and seen < _MOST_NODES:
        node, depth = waiting.pop(0)
        seen += 1
        if node is None:
            continue
        if type(node).__name__ in ("NllLossBackward0", "NllLoss2DBackward0") and hasattr(node, "_saved_target"):
            return node
        if depth < _DEEPEST:
            waiting.extend((one, depth + 1) for one, _ in node.next_functions)
    return None


def classes(node):
    return node._saved_self.shape[1]


def mean(node):
    """Returns (the mean over the tokens that count, their number); None if it is not a plain mean."""
    torch = sys.modules["torch"]
    if node._saved_reduction != _MEAN or node._saved_weight is not None or node._saved_self.device.type != "cpu":
        return None
    tokens = float(node._saved_total_weight)
    ignored = node._saved_ignore_index
    ignored -= 2**64 if ignored >= 2**63 else 0
    with torch.no_grad():
        value = torch.nn.functional.nll_loss(node._saved_self, node._saved_target, ignore_index=ignored)
    return (float(value), tokens) if tokens > 0 else None


class Tokens:
    """Reads the number of tokens over which the loss of each micro-batch is a mean: the evidence of
    precision/loss-mean-of-means."""

    def __init__(self, run):
        self._run, self._units, self.several, self._classes, self._unshared = run, [], False, None, 0
        self._counted = 0  # steps whose passes were all counted, or tried

    def wants(self):
        """Returns whether the passes of the next screened step must be counted."""
        return self.several and bool(self._classes) and self._counted < _ENOUGH

    def backward_begins(self, loss, due):
        """Called when the backward pass of `loss` begins. `due`: a measurement is due in this step."""
        if self._classes is None:
            node = cross_entropy(loss)
            self._classes = 0 if node is None else classes(node)
            if self._classes > 1:
                self._run._own_scalar("trained/classes", self._classes)
        if not (self.several and due and self._classes > 1):
            return
        node = cross_entropy(loss)
        unit = node is not None and mean(node)
        self._units.append(unit or None)

    def step_ends(self, losses, passes):
        """Called at the end of a step. losses: [(series, its losses)] of the step's micro-batches, as backward got
        them."""
        self.several = passes > 1
        losses = [float(loss) for loss in losses[0][1]] if len(losses) == 1 else ()
        units, self._units = self._units, []
        self._counted += bool(units)
        if len(units) == passes == len(losses) >= _ENOUGH_PASSES and None not in units:
            self._record_share(units, losses)
        elif passes > 1 and not self._classes and len(losses) == passes and self._unshared < _UNSHARED:
            self._unshared += 1  # the loss has no cross-entropy in its graph, so it is not known whether the trainer divides it
            self._run._own_scalar("trained/micro", passes)
        if len(units) != passes or None in units or len({tokens for _, tokens in units}) < 2 or not losses:
            return
        record = self._run._own_scalar
        record("trained/loss", sum(losses))
        for value, tokens in units:  # in the order of the passes
            record("trained/loss_sum", value * tokens)
            record("trained/tokens", tokens)

    def _record_share(self, units, losses):
        """Records the share of each micro-batch's mean in the gradient that the optimizer got: the evidence of
        health/accumulation-scale in the trainer's own loop."""
        shares = [loss / value for loss, (value, _) in zip(losses, units) if value > 0]
        if len(shares) == len(units) and max(shares) - min(shares) <= 1e-4 * max(shares):
            record = self._run._own_scalar
            record("trained/micro", len(units))
            record("trained/share", shares[0])
            record("trained/own_loop", 1)
