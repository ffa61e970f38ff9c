"""Gradient accumulation: keeps some elements of the gradient that each micro-batch adds to .grad, and of the gradient
that a step left in .grad."""

import sys

from .._kinds import KIND_REDUCTION
from .._library import NO_STEP
from .._reducing import as_indices, elements
from .._tensors import Unsupported, local
from .left import LeftGradient

_SAMPLES = 128  # the most addends of one parameter that are kept: a step may have a thousand micro-batches
_MOST_BYTES = 2 << 20  # the most bytes of one parameter's addends that are kept in one step


class _Sum:
    """One parameter's running sum over the micro-batches of a step."""

    def __init__(self, run, name, parameter):
        self._run, self._name, self._parameter = run, name, parameter
        self._step = None
        self._indices = None
        self._left = LeftGradient(parameter)
        self._start_over()
        # Returns the node that adds to .grad; its hooks run after the addition. The caller must keep it alive.
        self._node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        self._handles = ()
        self.hook()

    def hook(self):
        self._handles = (
            self._parameter.register_hook(self._before),
            self._node.register_hook(self._after),
        )

    def remove(self):
        handles, self._handles = self._handles, ()
        for handle in handles:
            handle.remove()

    def pause(self):
        """As remove(), until hook(). The gradient that a step leaves meanwhile is not known."""
        self.remove()
        self._start_over()
        self._step = None
        self._left.forget()

    def _start_over(self):
        self._rows, self._sum, self._pending = [], None, None

    def _captured(self):
        """Returns whether this step keeps elements. Checks this once a step."""
        run = self._run
        if run._step != self._step:
            self._step = run._step
            self._start_over()
            self._indices = None
            if self._step == NO_STEP:
                return False
            site = run._site(KIND_REDUCTION, self._name, "accumulation")
            sampled = site and run._indices(site, self._parameter.numel(), _SAMPLES)
            self._indices = None if sampled is None else as_indices(sampled)
            if self._indices is not None:
                self._report_left(self._left.found())
        return self._indices is not None

    def _report_left(self, seen):
        if seen is not None:
            places, left, found = seen
            self._run.observe_reduction(
                self._name, left, found, op="accumulation", offsets=places,
                count=self._parameter.numel(), algorithm="left-gradient",
            )  # fmt: skip

    def _guarded(self, body, *arguments):
        try:
            body(*arguments)
        except Exception as error:  # no error of this package may end the trainer's step
            self._indices = None
            self._run._report_error(("accumulation", self._name),
                            f"watch_accumulation: {self._name}: {error!r}")  # fmt: skip

    def _before(self, addend):
        self._guarded(self._note_before, addend)

    def _note_before(self, addend):
        captured = self._captured()
        self._left.added()
        if not captured or addend.is_sparse:
            return
        torch = sys.modules["torch"]
        total = self._parameter.grad
        before = None if total is None else elements(total, self._indices)
        if self._sum is not None and (before is None or not torch.equal(before, self._sum)):
            self._emit()  # .grad was cleared or changed between two micro-batches: another sum begins
        if self._sum is None and before is not None and bool(before.ne(0).any()):
            self._rows.append(before)  # the gradient that earlier steps left is the first addend of this sum
        self._pending = elements(addend, self._indices)

    def _after(self, *_):
        if self._pending is not None:
            self._guarded(self._note_after)

    def _note_after(self):
        self._rows.append(self._pending)
        self._pending = None
        self._sum = elements(self._parameter.grad, self._indices)
        if len(self._rows) * self._sum.numel() * self._sum.element_size() > _MOST_BYTES:
            self._emit()

    def end_step(self):
        if self._rows:
            self._guarded(self._emit)
        self._guarded(self._keep_left)

    def _keep_left(self):
        run = self._run
        site = run._site(KIND_REDUCTION, self._name, "accumulation")
        self._report_left(self._left.used())
        self._left.step_ends(due=site is not None and site.word[0] <= run._step + 1)

    def _emit(self):
        """Records the sum, if it has at least two addends."""
        torch = sys.modules["torch"]
        if len(self._rows) > 1:
            self._run.observe_reduction(
                self._name, torch.stack(self._rows), self._sum, op="accumulation",
                offsets=self._indices, count=self._parameter.numel(), algorithm="accumulation",
            )  # fmt: skip
        self._start_over()


class Watched:
    """The result of watch_accumulation."""

    def __init__(self, run, sums):
        self._run, self._sums, self._paused = run, sums, False
        run._at_step_end.append(self._end_step)

    def pause(self):
        """Removes the hooks of its parameters until resume(), for steps in which nothing is observed."""
        if not self._paused:
            self._paused = True
            for one in self._sums:
                one.pause()

    def resume(self):
        if self._paused:
            self._paused = False
            for one in self._sums:
                one.hook()

    def _end_step(self):
        for one in self._sums:
            one.end_step()

    def remove(self):
        self._paused = False
        for one in self._sums:
            one.remove()
        if self._end_step in self._run._at_step_end:
            self._run._at_step_end.remove(self._end_step)


def named_pairs(parameters):
    """Returns (name, parameter) pairs. Raises Unsupported."""
    torch = sys.modules.get("torch")
    expected = "expected a module or (name, parameter) pairs, as named_parameters() gives them"
    if isinstance(parameters, dict):
        parameters = parameters.items()
    elif not isinstance(parameters, type) and hasattr(parameters, "named_parameters"):
        parameters = parameters.named_parameters()
    try:
        pairs = list(parameters)
    except TypeError:
        raise Unsupported(f"{expected}, not {parameters!r}") from None
    for pair in pairs:
        good = isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)
        if not good or torch is None or not isinstance(pair[1], torch.Tensor):
            raise Unsupported(f"{expected}, not a sequence of {type(pair).__name__}")
    return pairs


def watch_accumulation(run, parameters, limit):
    trained = [(name, p) for name, p in named_pairs(parameters) if p.requires_grad and p.is_leaf and local(p) is p]  # no shards: they are summed elsewhere
    # The order of names decides between equal sizes: every rank watches the same ones.
    trained.sort(key=lambda pair: (-pair[1].numel(), pair[0]))
    with sys.modules["torch"].enable_grad():
        return Watched(run, [_Sum(run, name, p) for name, p in trained[:limit]])
