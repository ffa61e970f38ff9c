"""Complete gradients: some elements of each rank's own gradient, and of the one that its optimizer applies."""

import sys

from .._kinds import KIND_REDUCTION
from .._library import NO_STEP
from .._reducing import as_indices, elements
from .._tensors import Unsupported, local
from .accumulation import named_pairs

_SAMPLES = 64  # elements of one parameter: more than the ranks, whose weights are fitted


class _Applied:
    """One parameter: its own gradient at the end of the newest backward pass."""

    def __init__(self, run, name, parameter, op):
        self._run, self._name, self._parameter, self._op = run, name, parameter, op
        self._step, self._indices, self._own = None, None, None
        # It runs before the hooks with which reducers collect the gradient.
        self._handle = parameter.register_post_accumulate_grad_hook(self._accumulated)

    def remove(self):
        self._handle.remove()

    def _sampled(self):
        """Returns the elements of this step, the same on every rank; None in a step that keeps none."""
        run = self._run
        if run._step != self._step:
            self._step, self._own, self._indices = run._step, None, None
            if self._step != NO_STEP:
                site = run._site(KIND_REDUCTION, self._name, self._op)
                sampled = site and run._indices(site, self._parameter.numel(), _SAMPLES)
                self._indices = None if sampled is None else as_indices(sampled)
        return self._indices

    def _accumulated(self, parameter):
        try:
            indices = self._sampled()
            if indices is not None and parameter.grad is not None and not parameter.grad.is_sparse:
                self._own = elements(parameter.grad, indices)
        except Exception as error:  # nothing of ours may end the trainer's step
            self._report(error)

    def applied(self):
        """Called when the optimizer is about to read the gradient."""
        own, self._own = self._own, None
        gradient = self._parameter.grad
        if own is None or gradient is None or gradient.is_sparse or self._run._step != self._step:
            return
        self._run.observe_reduction(
            self._name, own, elements(gradient, self._indices), op=self._op, offsets=self._indices,
            count=self._parameter.numel(), algorithm="applied-gradient",
        )  # fmt: skip

    def _report(self, error):
        self._own = None
        self._run._report_error(("completeness", self._name), f"watch_completeness: {self._name}: {error!r}")


class WatchedGradients:
    """The result of watch_completeness."""

    def __init__(self, gradients, optimizers):
        self._gradients = gradients
        self._handles = [optimizer.register_step_pre_hook(self._step) for optimizer in optimizers]

    def _step(self, *_):
        for gradient in self._gradients:
            try:
                gradient.applied()
            except Exception as error:
                gradient._report(error)

    def remove(self):
        for one in (*self._gradients, *self._handles):
            one.remove()


def watch_completeness(run, parameters, optimizer, limit, summed):
    torch = sys.modules["torch"]
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    if not all(hasattr(one, "register_step_pre_hook") for one in optimizers):
        raise Unsupported(f"optimizer: expected a torch optimizer or a list of them, not {optimizer!r}")
    if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        raise Unsupported(f"torch {torch.__version__}: expected 2.1 or newer, which has register_post_accumulate_grad_hook")
    if summed is None:
        summed = isinstance(parameters, getattr(torch.nn.parallel, "DistributedDataParallel", ()))
    ignored = getattr(parameters, "parameters_to_ignore", ())  # DDP leaves them to the trainer
    named = {}
    for name, parameter in named_pairs(parameters):
        if parameter.requires_grad and parameter.is_leaf and local(parameter) is parameter:
            named[name.removeprefix("module.")] = parameter
    # The order of names decides between equal sizes: every rank watches the same ones.
    largest = sorted(named, key=lambda name: (-named[name].numel(), name))[:limit]
    gradients = [
        _Applied(run, name, named[name], "avg" if summed and name not in ignored else "other")
        for name in largest
    ]
    return WatchedGradients(gradients, optimizers)
