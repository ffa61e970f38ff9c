"""Observed communication hooks of DDP: run.observed(hook)."""

import functools
import itertools
import math
import sys
from time import thread_time_ns

from ._capture import Capture
from ._kinds import KIND_REDUCTION
from ._library import CAPTURING
from ._process_groups import describe_group, group_of_state, world
from ._reducing import as_indices, elements

_MOST_COLLECTIVES = 4  # the most collectives of one hook call that are kept


def _average(state, bucket):
    """Computes the same as DDP without a hook, to the bit: multiplies by 1/N, then sums."""
    group = group_of_state(state)
    group = world() if group is None else group
    buffer = bucket.buffer()
    buffer.mul_(1.0 / group.size())
    work = sys.modules["torch.distributed"].all_reduce(buffer, group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def plain_hook(hook):
    return _average if hook is None else hook


def _factor(before, after, ranks):
    """Returns c of after = c * before, if all elements agree within the rounding of `after`; else 0."""
    torch = sys.modules["torch"]
    a, b = before.double(), after.double()
    tiny = torch.finfo(after.dtype).tiny  # below this value the rounding is not relative
    use = torch.isfinite(a) & torch.isfinite(b) & (a != 0) & (b.abs() > tiny)
    if int(use.sum()) < 8:
        return 0.0
    ratios = b[use] / a[use]
    eps = 4 * torch.finfo(after.dtype).eps
    median = float(ratios.median())
    power_of_two = math.copysign(2.0 ** round(math.log2(abs(median))), median)
    for factor in (1.0, 1.0 / ranks, float(ranks), power_of_two, median):
        if bool(((ratios - factor).abs() <= eps * abs(factor)).all()):
            return factor
    return 0.0


def _charged(method):
    """Charges the time of a due call to the run's budget."""

    @functools.wraps(method)
    def charged(self, *arguments):
        run, began = self._run, thread_time_ns()
        spent = run._spent
        try:
            return method(self, *arguments)
        finally:
            took = thread_time_ns() - began
            run._spent = spent + took  # includes nested calls
            if self._hook.paced is not None:
                self._hook.paced.spent += took

    return charged


class _Kept:
    """One collective of a hook call: the sampled elements of its input and output."""

    __slots__ = ("layer", "op", "group", "count", "dtype", "indices", "input", "output")

    def __init__(self, layer, op, group, tensor, indices):
        self.layer, self.op, self.group = layer, op, group
        self.count, self.dtype, self.indices = tensor.numel(), tensor.dtype, indices
        self.input = None if indices is None else elements(tensor, indices)
        self.output = None


class _Call:
    """One due call of a hook."""

    def __init__(self, hook, layer, group, sequence, bucket):
        self._hook, self._run = hook, hook.run
        self._layer, self._group, self._sequence = layer, describe_group(group), sequence
        self._kept = []
        self._count = 0
        buffer = bucket.buffer()
        self._dtype, self._elements = buffer.dtype, buffer.numel()
        # The op of the bucket's last call determines the site of the collective.
        self._op = hook.ops.get(layer)
        self._indices = None if self._op is None else self._sampled(layer, self._op, buffer.numel())
        self._bucket = None if self._indices is None else elements(buffer, self._indices)

    def _sampled(self, layer, op, count):
        site = self._run._site(KIND_REDUCTION, layer, op)
        sampled = None if site is None else self._run._indices(site, count)
        return None if sampled is None else as_indices(sampled)

    @_charged
    def started(self, group, tensor, op):
        """Called when a collective is about to start."""
        try:
            number, self._count = self._count, self._count + 1
            if number >= _MOST_COLLECTIVES:
                return None
            layer = self._layer if number == 0 else f"{self._layer}.{number}"
            if number == 0:
                self._hook.ops[layer] = op
            same = number == 0 and op == self._op and tensor.numel() == self._elements
            indices = self._indices if same else self._sampled(layer, op, tensor.numel())
            kept = _Kept(layer, op, describe_group(group), tensor, indices)
            if indices is None:  # no element of the result is needed
                self._observe(kept, None)
                return None
            self._kept.append(kept)
            return functools.partial(self._ended, kept, tensor)
        except Exception as error:
            self._hook.report_error(error)
            return None

    @_charged
    def _ended(self, kept, tensor):
        try:
            kept.output = elements(tensor, kept.indices)
        except Exception as error:
            self._hook.report_error(error)

    def waits(self):
        """Returns whether more must be recorded when the hook's future has its value."""
        return bool(self._kept) or self._count == 0

    @_charged
    def finished(self, result):
        """Called when the future has its value."""
        try:
            if self._kept:
                for kept in self._kept:
                    self._observe(kept, result)
            elif self._op is None:
                self._hook.ops[self._layer] = "avg"  # the next calls use this op
            else:
                self._observe_bucket(result)
        except Exception as error:
            self._hook.report_error(error)

    def _observe(self, kept, result):
        whole = kept.input is not None and kept.output is not None
        before = after = None
        if whole and kept is self._kept[0] and kept.indices is self._indices:
            before = _factor(self._bucket, kept.input, kept.group.size)
            if result.numel() == kept.count:
                after = _factor(kept.output, elements(result, kept.indices), kept.group.size)
            self._observe_cast(kept, before)
        self._run.observe_reduction(
            kept.layer, kept.input if whole else None, kept.output if whole else None, op=kept.op,
            offsets=kept.indices if whole else None, group=kept.group.name,
            sequence=self._sequence, wire_dtype=kept.dtype, count=kept.count,
            group_size=kept.group.size, group_rank=kept.group.rank, prescale=before,
            postscale=after, transport=kept.group.transport,
        )  # fmt: skip

    def _observe_cast(self, kept, before):
        """Observes the values before the hook's cast, scaled as the hook scaled them."""
        if before and self._bucket.element_size() > kept.input.element_size():
            self._run._observe_cast(kept.layer, self._bucket * before, kept.dtype)

    def _observe_bucket(self, result):
        """No all_reduce was seen: the input is the bucket, the output is the hook's result."""
        same = self._bucket is not None and result.numel() == self._elements
        output = elements(result, self._indices) if same else None
        group = self._group
        self._run.observe_reduction(
            self._layer, self._bucket if same else None, output, op=self._op,
            offsets=self._indices if same else None, group=group.name, sequence=self._sequence,
            wire_dtype=self._dtype, count=self._elements, group_size=group.size,
            group_rank=group.rank, algorithm="hook", transport=group.transport,
        )  # fmt: skip


class _Observed:
    """One wrapped hook."""

    def __init__(self, run, hook, name, paced):
        self.run, self.hook, self.name, self.paced = run, plain_hook(hook), name, paced
        self.ops = {}  # site -> the op of its last collective
        self._words = {}  # bucket -> (site, due words by op)
        self._sequence = None

    def report_error(self, error):
        """Reports an error without raising it, in strict mode too: nothing may be raised inside the trainer's backward
        pass."""
        self.run._warn_once(("observed", self.name), f"observed({self.name!r}): {error!r}")

    def _count_calls(self, group):
        self.run._ranks.follow(self.run, softly=True)
        name = describe_group(group).name
        self._sequence = self.run._sequences.setdefault(name, itertools.count())

    def _due(self, layer):
        op = self.ops.get(layer)
        if op is None:
            return True
        site = self.run._open_sites.get((KIND_REDUCTION, layer, op))
        return site is None or (self.run._step >= site.word[0] and (self.paced is None or self.paced.measures()))

    def _prepare(self, state, bucket):
        """Returns the call to observe, or None; the sequence number advances in both cases.

        Keeps no process group from call to call: a group that outlives torch's own references crashes the process at
        its end.
        """
        try:
            if self._sequence is None:
                self._count_calls(group_of_state(state))
            sequence = next(self._sequence)
            layer = f"{self.name}.{bucket.index()}"
            if self.run._step >= CAPTURING or not self._due(layer):
                return None
            return _Call(self, layer, group_of_state(state), sequence, bucket)
        except Exception as error:
            self.report_error(error)
            return None

    def _wait_begins(self, bucket):
        """Measures the rest of the backward pass, which is waiting until the last bucket is reduced.

        DDP waits in a callback of the engine that it queues after this call; ours is queued after that one. On a
        device the host does not wait here.
        """
        if not bucket.is_last() or bucket.buffer().device.type != "cpu":
            return
        run = self.run
        if "collective" in run._trainers_stages:
            return
        queue = sys.modules["torch"].autograd.Variable._execution_engine.queue_callback
        span = run._begin_span("collective", "gradients")
        queue(lambda: queue(lambda: run._end_span(span)))

    def _passes(self, light, state, bucket):
        """Counts a call in a light step, in which nothing is measured."""
        try:
            if self._sequence is None:
                self._count_calls(group_of_state(state))
            next(self._sequence)
            if bucket.is_last():
                light.sums()
        except Exception as error:
            self.report_error(error)
        return self.hook(state, bucket)

    def __call__(self, state, bucket):
        light = self.run._light
        if light is not None:
            return self._passes(light, state, bucket)
        began = thread_time_ns()
        try:
            self._wait_begins(bucket)
        except Exception as error:
            self.report_error(error)
        call = self._prepare(state, bucket)
        if call is None:
            return self.hook(state, bucket)
        group = group_of_state(state)
        with Capture(world() if group is None else group, call.started):
            entered = thread_time_ns()
            future = self.hook(state, bucket)
            left = thread_time_ns()
        self.run._spent += entered - began + thread_time_ns() - left
        if not call.waits():
            return future

        def finish(done):
            value = done.value()  # raises the exception of the hook's future, if it has one
            call.finished(value)
            return value

        try:
            return future.then(finish)
        except AttributeError:  # the hook did not return a future; DDP reports this
            return future


def observed(run, hook, name, paced=None):
    """A function, because DDP checks a hook's signature and name. paced: a PacedSums, or None: calls are measured if they
    are due."""
    wrapped = _Observed(run, hook, name, paced)

    @functools.wraps(wrapped.hook)
    def communication_hook(state, bucket):
        return wrapped(state, bucket)

    communication_hook.plumbline = True
    return communication_hook
