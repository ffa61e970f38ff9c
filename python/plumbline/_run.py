"""A run, with the methods that a trainer calls."""

import ctypes
import operator
import os
from time import thread_time_ns

from . import _routing
from ._contexts import Capturing, Span, Step
from ._delivery import Delivery
from ._kinds import KIND_ROUTING
from ._library import CAPTURING, NO_STEP, OK
from ._mistakes import Mistakes, PlumblineError, trainers_line
from ._metrics.logged import MEASURED
from ._observations import Observations
from ._stopping import TrainingStopped
from ._tensors import Scratch, Unsupported, replay_stream
from ._watching.budget import Budget

_scratch = Scratch()
_MOST_LATE = 256  # series between two steps


class Run(Mistakes, Observations, Delivery):
    """The part of one process in a training run. `plumbline.init` makes it.

    Every method may be called from any thread; `step` only from one thread at a time. Tensors are torch
    tensors, numpy arrays, objects with `__dlpack__`, or (small) nested lists; they are only read.
    On the CPU they may be changed as soon as the call returns. On a GPU they are read in the order of
    the current stream (torch's, for torch tensors), as a kernel of the trainer would read them; all tensors of
    one call are on one device.
    """

    def __init__(self, library, handle, strict, ranks, every=None, budget=None):
        self._short = library.short
        self._blocking = library.blocking
        self._library = library
        self._handle = handle
        self._strict = strict
        self._ranks = ranks
        self._pid = os.getpid()
        self._kept = None  # the result of finish; None: finish was not called
        self._broken = None  # the thread whose step an exception has left
        self._step = NO_STEP
        self._next_step = 0  # number of the next step
        self._made_before = 0  # steps that a framework had counted when this process began to train
        self._explicit_steps = False  # the trainer begins steps itself
        self._step_context = Step(self)
        self._sites = {}  # layer -> handle
        self._due = {}  # layer -> memoryview of the site's due word
        self._reported = set()
        self._observe_routing = library.short.plumbline_observe_routing
        self._scalar = library.short.plumbline_scalar
        self._names = {}
        self._budget = Budget(every, budget)
        self._redacts = False  # ids leave the process as keyed hashes only
        self._looked_until = -1
        self._after_step = None  # a function that is called once, when the open step has ended
        self._light = None  # the Light of a watch whose steps are light
        self._trainers_series = set()  # series names that the trainer records
        self._trainers_stages = set()
        self._logged = None  # the Logged of a run that watches a model
        self._late = {}  # name -> (value, line) of scalars between two steps
        self._stated = {}  # (site, op) of a reduction -> (count, dtype) of its newest call
        self._start_observations()

    def _noticed(self, steps):
        """Observes the next `steps` steps, from the open one on, completely."""
        self._looked_until = self._step + steps - 1 if self._step < CAPTURING else self._looked_until

    # ---- steps ---------------------------------------------------------------------------------

    def step(self, number):
        """`with run.step(i):` observations inside belong to step i. Step numbers increase."""
        context = self._step_context
        context._number = number
        return context

    def begin_step(self, number=None):
        """Begins a step, for loops in which a `with` does not fit. end_step ends it. None: the next number."""
        self._explicit_steps = True
        self._begin_step(self._following() if number is None else number)

    def end_step(self):
        """Ends the step that begin_step began. If no step is open, does nothing."""
        self._end_step()

    def _following(self):
        """Returns the number of the step after the newest one."""
        return self._next_step if self._light is None else self._light.step

    def _begin_step(self, number):
        if self._light is not None and self._light.begins(number):
            return
        if self._next_step == 0:  # usually nothing is recorded yet
            self._ranks.follow(self)
        try:
            number = operator.index(number)
            status = self._short.plumbline_step_begin(self._handle, number)
        except (TypeError, ctypes.ArgumentError):
            self._report_error("step", f"step {number!r}: expected an integer")
            return
        if self._check("step", status) == OK:
            self._step = number
            self._next_step = number + 1
            if self._waiting:
                self._release_waiting()
            if self._late:
                self._record_late()

    def _end_step(self):
        if self._step != NO_STEP:
            if self._at_step_end:
                self._end_observations()
            if self._spent:
                spent, self._spent = self._spent, 0
                self._short.plumbline_charge(self._handle, spent)
            self._step = NO_STEP
            self._check("step", self._short.plumbline_step_end(self._handle))
            if self._after_step is not None:
                after, self._after_step = self._after_step, None
                after()

    # ---- CUDA graphs ---------------------------------------------------------------------------

    def capturing(self, stream=None):
        """`with run.capturing(), torch.cuda.graph(g):` observations inside become part of the graph. Each
        replay in a step in which the site is due measures them; one graph serves all steps. Supported
        are router calls, products, floating tensors and updates on the GPU; other observations are
        not made there.

        stream: the stream (torch's, or its number) on which the graph will be replayed; default: the
        current one. Steps begin and end in its order, so replay the graph on it, or on streams
        that wait for it after the step's begin and that it waits for before the step's end. During
        the capture, no thread observes anything of this run outside of graphs.
        """
        return Capturing(self, stream)

    def _begin_capture(self, stream):
        try:
            number = replay_stream() if stream is None else stream
            number = operator.index(getattr(number, "cuda_stream", number))
            status = self._short.plumbline_capture_begin(self._handle, number or None)
        except Unsupported as error:
            self._report_error("capturing", f"capturing: {error}")
            return None
        except (TypeError, ctypes.ArgumentError):
            self._report_error("capturing", f"capturing: stream {stream!r}: expected a CUDA stream")
            return None
        if self._check("capturing", status) != OK:
            return None
        former, self._step = self._step, CAPTURING
        return former

    def _end_capture(self, former):
        self._step = former
        self._check("capturing", self._short.plumbline_capture_end(self._handle))

    # ---- observations --------------------------------------------------------------------------

    def observe_routing(
        self,
        layer,
        router_logits=None,
        router_scores=None,
        topk_indices=None,
        keep_mask=None,
        routing_map=None,
        probs=None,
        expert_bias=None,
        sequence_id=None,
        position=None,
        padding_mask=None,
        pool_id=None,
        top_k=None,
        score_function=None,
        capacity=None,
        groups=None,
        top_groups=None,
        group_score=None,
        pool=None,
        flatten=None,
        randomness=None,
        bias_captured=None,
        mode=None,
        capacity_source=None,
        policy=None,
        region=None,
        **unknown,
    ):
        """Records one router call over T tokens and E experts, with k choices per token.

        router_logits [T,E] before `score_function`, or router_scores [T,E] after it (with both,
        the logits are taken if score_function is given). topk_indices [T,k], -1 for no choice;
        keep_mask [T,k]; routing_map [T,E]; probs [T,E] or [T,k]; expert_bias [E], added after the
        score function; sequence_id, position, padding_mask (true: padding), pool_id: [T].
        score_function "softmax" | "sigmoid" | "identity"; capacity per expert and pool: a count,
        "none", or None (not given); group_score "max" | "sum2"; pool "microbatch" | "sequence" |
        "group" | "rank" | "world"; flatten "seq-major" | "batch-major"; bias_captured "before" |
        "after"; mode "train" | "eval"; randomness: the random part of the choice ("jitter").
        capacity_source "declared" (also when None: the configuration's number) | "inferred" (from
        observed loads: findings that need it are hints); policy: how full experts
        refuse, as the configuration names it ("fifo-capacity", "score-capacity", ...).
        region [T] mask: 0 generated, 1 prompt (never generated); None: all 0.
        Leading axes are merged ([S,B,E] as [S*B,E]). top_k defaults to topk_indices' width.
        Pass all but the logits by keyword. (They are not marked keyword-only because Python looks
        up each missing one by name: a third of the cost of a call that is not due.)
        """
        try:
            if self._step < self._due[layer][0]:
                return
        except (KeyError, TypeError):  # the layer's first call, or no name at all
            pass
        if unknown:
            return self._unknown("observe_routing", layer, unknown)
        self._observe_due(
            layer, router_logits, router_scores,
            (
                ("expert_bias", expert_bias, 1, False),
                ("topk_indices", topk_indices, 2, True),
                ("keep_mask", keep_mask, 2, True),
                ("routing_map", routing_map, 2, False),
                ("probs", probs, 2, True),
                ("sequence_id", sequence_id, 1, False),
                ("position", position, 1, False),
                ("padding_mask", padding_mask, 1, False),
                ("pool_id", pool_id, 1, False),
                ("region", region, 1, False),
            ),
            top_k, score_function, capacity, groups, top_groups, group_score, pool, flatten,
            randomness, bias_captured, mode, capacity_source, policy,
        )  # fmt: skip

    def _observe_due(self, layer, *call):
        keep = []
        if self._light is not None:
            self._light.interrupted()
        try:
            site = self._sites.get(layer)
            if site is None:
                site = self._new_site(layer)
                if site is None or self._step < self._due[layer][0]:
                    return
            began = thread_time_ns()
            packed = _routing.pack(_scratch, keep, *call)
            self._spent += thread_time_ns() - began
            status = self._observe_routing(site, packed)
        except PlumblineError:
            raise
        except Unsupported as error:
            self._report_error(("routing", repr(layer)), f"observe_routing({layer!r}): {error}")
        except Exception as error:  # no error of this package may end the trainer's step
            self._report_error(("routing", repr(layer)), f"observe_routing({layer!r}): {error!r}")
        else:
            if status < 0:
                self._check(("routing", layer), status)

    def _new_site(self, layer):
        if not isinstance(layer, str):
            raise Unsupported(f"a layer's name is a string, not {layer!r}")
        handle = self._declare_site(KIND_ROUTING, layer, None)
        if handle is not None:
            word = ctypes.c_uint64.from_address(handle)
            self._sites[layer] = handle
            self._due[layer] = memoryview(word).cast("B").cast("Q")
        return handle

    def _declare_site(self, kind, layer, op):
        """Returns the site's handle. Returns None if it could not be declared; the error was reported."""
        out = ctypes.c_void_p()
        status = self._short.plumbline_site_at(
            self._handle, kind, layer.encode(), None if op is None else op.encode(), *trainers_line(), ctypes.byref(out),
        )  # fmt: skip
        return None if self._check(("site", layer), status) < 0 else out.value

    def scalar(self, name, value):
        """Records one value of a series at the open step ("loss"). NaN and infinity are data.

        If watch() opens the steps and none is open, the value belongs to the step that opens next. A tensor is read
        with float(), which waits for the device if it lies on one.
        """
        self._send_scalar(name, value, True)
        if self._logged is not None:
            self._logged.take({name: value})

    def _own_scalar(self, name, value):
        """Records a value of watch, unless the trainer records a series of this name."""
        if name in self._trainers_series:
            if name not in MEASURED:
                return
            name = f"measured/{name}"
        encoded = self._names.get(name)
        if encoded is None:
            return self._send_scalar(name, value, False)
        status = self._scalar(self._handle, encoded, value)
        if status < 0:
            self._check(("scalar", name), status)

    def _send_scalar(self, name, value, by_trainer):
        encoded = self._names.get(name)
        if self._light is not None:
            self._light.interrupted()
        try:
            if by_trainer:
                self._trainers_series.add(name)
                if self._step == NO_STEP and self._logged is not None:
                    return self._keep_late(name, float(value))
            if encoded is None:
                encoded = self._names[name] = name.encode()
                status = self._short.plumbline_scalar_at(self._handle, encoded, float(value), *trainers_line())
            else:
                status = self._scalar(self._handle, encoded, float(value))
        except Exception as error:
            self._report_error(("scalar", repr(name)), f"scalar({name!r}): a name and a number: {error}")
            return
        if status < 0:
            self._check(("scalar", name), status)

    def _keep_late(self, name, value):
        """A scalar after the step that watch() has ended belongs to the step that opens next."""
        if name in self._late or len(self._late) < _MOST_LATE:
            self._late[name] = (value, None if name in self._names else trainers_line())
        else:
            self._report_error("scalars", f"scalar({name!r}): more than {_MOST_LATE} series between two steps")

    def _record_late(self):
        late, self._late = self._late, {}
        for name, (value, line) in late.items():
            if name in self._names:
                status = self._scalar(self._handle, self._names[name], value)
            else:
                self._names[name] = name.encode()
                status = self._short.plumbline_scalar_at(self._handle, self._names[name], value, *line)
            if status < 0:
                self._check(("scalar", name), status)

    def span(self, kind, name=None):
        """`with run.span("checkpoint"):` measures a stage of the training loop.

        kind: data, forward, backward, optimizer, collective, checkpoint, evaluation, compile, pause, other.
        """
        self._trainers_stages.add(name if kind == "other" else kind)
        return Span(self, kind, name)

    def pause(self, name=None):
        """`with run.pause():` no step is expected inside: the trainer waits for a resource or a person.

        health/hang-between-steps and performance/hang report nothing in that time.
        """
        return self.span("pause", name)

    def _begin_span(self, kind, name):
        span = ctypes.c_uint64()
        try:
            encoded = name.encode() if name is not None else None
            status = self._short.plumbline_span_begin(
                self._handle, kind.encode(), encoded, ctypes.byref(span)
            )
        except (AttributeError, ctypes.ArgumentError):
            self._report_error(("span", repr(kind)), f"span({kind!r}, {name!r}): expected strings")
            return 0
        self._check(("span", kind), status)
        return span.value

    _planned = -1  # the step in which the watch measures next

    def _plan(self, step):
        """Reports the step in which something is measured next, so that no measurement before it is missing."""
        self._planned = step
        self._check("next_look", self._short.plumbline_next_look(self._handle, step))

    def _end_span(self, span):
        self._check("span", self._short.plumbline_span_end(self._handle, span))

    # ---- stopping ------------------------------------------------------------------------------

    _stopping = None  # the Stopping, if stop_on was given

    @property
    def should_stop(self):
        """Returns True after the first finding of the level of init's stop_on, on each rank after the same step."""
        if self._stopping is not None:
            self._stopping.checked = True
        return self._stops(max(0, self._following() - 1))

    def _end_training(self):
        """Called after a step of a watched optimizer, if stop_on was given. Raises TrainingStopped."""
        if not self._stopping.checked and self._kept is None and self._stops(max(0, self._following() - 1)):
            raise TrainingStopped(self._stopping.reason or "another rank has a finding")

    def _stops(self, step):
        return self._stopping is not None and self._stopping.due(step)
