"""Light steps: steps of a plain loop in which nothing is due. The loss, the rates, the gradient's norm and the tokens
of some steps are stored at once into memory that the agent reads (plumbline/steps.h). No call is made into the
library, and no module has a hook.

A step is a whole one again if a measurement is due. It becomes a whole one at once if one of its values is notable, or
if the trainer records something itself.
"""

import math
import sys
from threading import get_ident
from time import monotonic_ns

from .._library import NO_STEP
from .averages import Averages
from .entry import Entry, Within
from .light_when import may_be_light, next_whole, scales_otherwise
from .modules import Backward, options_of
from .ring import RATES, Ring
from .scaling import Scaling
from .screening import Screening
from .stages import BACKWARD, COLLECTIVE, NONE, NOW

_AT_ONCE, _LATEST = 32, 100_000_000  # number of steps that are stored together; the most ns that a step waits to be stored
_FIRST = 4  # number of first steps that are always whole
_PAID = 0.25  # share of the budget: if a whole step costs more, steps become light
_MOST = 4096  # the most light steps in a row
_REST, _LONGEST = 64, 1 << 16  # number of whole steps after the trainer has recorded something itself: at first, at most


class Light:
    """The light steps of one watch that is alone in its run's loop, with one optimizer."""

    # Each step evicts all of it from the caches, so the fields that a light step reads come first and are adjacent.
    __slots__ = ("on", "running", "thread", "most", "passes", "alarm", "loss", "marked", "mark", "marks", "zeroed", "begun", "place", "tokens",
                 "words", "rows", "until", "due", "at", "screening", "clipped", "waiting", "inputs", "listens", "scaler", "trains", "grad_enabled", "_first", "_left",
                 "_ring", "_since", "_level", "_watch", "_run", "_loop", "plain", "_rest", "_not_before", "_backward", "_entry",
                 "_within", "_entered", "_screen", "_screened", "fronted", "reduces")  # fmt: skip

    def __init__(self, watch, run, loop):
        self._watch, self._run, self._loop, self.plain = watch, run, loop, False  # plain: whether the trainer is a loop that allows light steps
        self._ring, self._since, self._first, self._left = Ring(run), 0, 0, 0
        # Steps that are not stored yet; the number of steps that are stored together; the latest time of that, in ns.
        self.rows, self.due, self.until = [], 1, 0
        self.at, self.screening = -1, False  # index in `rows` of the next screened step; whether the step is being screened
        self._screen, self._screened = Screening(watch), 0  # _screened: number of the next screened step
        self.alarm, self._level = -math.inf, (0, 0.0, 0.0)  # alarm: a loss above it is notable
        self.loss, self.passes, self.most, self.running = 0.0, 0, 1, False
        self.scaler = None  # the scaler whose scaled losses are trained on
        self.listens = False  # whether the model's own forward is not called, so the first of its modules begins a pass
        self.thread, self.waiting, self.mark, self.marks, self.marked = None, (), 0, [0], False  # marked: the heartbeat has the mark
        self._rest, self._not_before = _REST, _FIRST
        self.reduces = False  # whether the last sum over ranks of the pass in progress has begun
        self.fronted = watch._passes  # the Passes; if its `begun` is set, a pass has begun, and later modules of the model do not begin another
        self.on, self.zeroed, self.begun, self.clipped = False, False, False, False  # begun: the trainer has begun the step itself
        self.trains, self.place, self.tokens = True, None, 0
        self.inputs, self.words = (), None  # arguments of the newest forward pass
        self._backward, self._entry, self._within, self._entered, self.grad_enabled = None, None, None, False, sys.modules["torch"].is_grad_enabled

    @property
    def step(self):
        """Returns the number of the open step, or of the next one."""
        return self._first + len(self.rows)

    # ---- when ----------------------------------------------------------------------------------

    def _may(self):
        watch, run, loop = self._watch, self._run, self._loop
        if self._ring.full():
            return False
        if not self.plain or run._step != NO_STEP or run._next_step < self._not_before or run._next_step <= run._looked_until:
            return False
        if not self.worth():  # the budget allows all values of each step
            return False
        return len(loop.watches) == 1 and Averages.armed is None and may_be_light(watch)

    def worth(self):
        """Returns whether a whole step costs too much of the budget, if steps can be light."""
        budget = self._run._budget
        if not self.plain or budget.base is None or budget.period is None or scales_otherwise(self._watch):
            return False
        return budget.base > _PAID * budget.share * budget.period

    def step_ended(self):
        """Called when a whole step of ours has ended."""
        if self._may():
            next_one = next_whole(self._watch, self._run._next_step)
            if next_one > self._run._next_step:
                self._begin(min(next_one - self._run._next_step, _MOST))

    def _begin(self, steps):
        if not self._ring.open():
            self.plain = False
            return
        if not Backward.lighten(self):
            return
        watch, run = self._watch, self._run
        self._left, self._since = steps, self._ring.written
        self._first, self.thread = run._next_step, get_ident()
        self.loss, self.passes, self.zeroed, self.clipped = 0.0, 0, bool(watch._zeroed), False
        self._level = watch.screen.level()
        self.most = max(1, watch.standstill.most)  # if a step has more passes than the steps before, its gradients may be divided
        self.waiting = watch._untrained.waiting()
        self._screened = self._screen.next(self._first)
        self._store()  # at this point no parameter has a gradient
        self.trains, self.place, self.inputs, self.words, self.tokens = watch.hooked.training, watch.place, (), None, watch.tokens
        self.marks, self.marked = self._loop.stages.marks() or [0], False
        watch.light_begins()
        self.on = True
        watch.light = run._light = self
        if self._entry is None:
            self._entry = Entry(self, watch.hooked, watch.hook)
            self._within = None if watch.within is None else Within(self, watch._model, watch.within)
        self.listens, self.scaler = self.fronted.listening, Scaling.scaler()
        self._entered = self.trains and not self.listens and self._entry.put()
        if not self._entered:
            watch.hook.light = self
        if self._within is not None:
            self._within.put()
        if self.listens:
            self.fronted.light = self

    def begins(self, number):
        """Called when the trainer begins a step itself. Returns False if the step is a whole one."""
        if number == self.step and not self.begun:
            self.begun = True
            return True
        self.end()
        return False

    # ---- a light step --------------------------------------------------------------------------

    def forward(self, module, inputs, words):
        """Called for a forward pass in another mode than the steps; BeforeForward and Entry handle the others.
        Returns False if the hooks of whole steps must handle it."""
        if not self.grad_enabled():
            self.evaluates()
            return True
        if module.training is self.trains:
            return True  # the model is in eval mode
        self._watch._guarded(self.interrupted)  # a module was set to eval mode or to train mode: a whole step records this
        return False

    def evaluates(self):
        """Called for a forward pass that is not trained on."""
        try:
            self._store()
            self._loop.stages.evaluates()
        except Exception as error:
            self.failed(error)

    def child(self, module, inputs, words):
        """Called for the first module of a pass of a model whose own forward is not called. Returns False if the hooks
        of whole steps must handle it."""
        if self.running:
            return True  # a backward pass recomputes this module
        if not self.grad_enabled() or self._watch.hooked.training is not self.trains:
            return self.forward(self._watch.hooked, inputs, words)
        if not module.training:
            return True  # this is a frozen part of the model: the next module begins the pass
        try:
            self.count(inputs, words)
        except Exception:  # the arguments differ from those before, so this step is a whole one
            self.interrupted()
            return False
        return True

    def count(self, inputs, words):
        """Counts the tokens of a pass."""
        place = self.place
        if place is not None:
            self.tokens += (inputs if place.__class__ is int else words)[place].numel()
        self.inputs, self.words = inputs, words
        self.fronted.begun = True

    def backward(self, plain, ours):
        """Returns the replacement of Tensor.backward (`plain`) and of our function for whole steps, used from the
        first light step on."""
        if self._backward is not None and self._backward.__wrapped__ is ours:
            return self._backward
        light, here, fronted = self, get_ident, self.fronted

        def backward(loss, gradient=None, retain_graph=None, create_graph=False, inputs=None):
            """Does everything in one Python frame, and calls torch's function in it: each frame costs some microseconds when the
            trainer has filled the caches, and a call with unpacked arguments costs more."""
            alone = gradient is None and retain_graph is None and create_graph is False and inputs is None
            options = None if alone else options_of(gradient, retain_graph, create_graph, inputs)
            if not light.on:
                return ours(loss) if alone else ours(loss, **options)
            if light.running:
                return plain(loss) if alone else plain(loss, **options)
            value = None
            if light.passes < light.most and gradient is None and here() == light.thread:
                try:
                    value = loss.item() if light.scaler is None else light.scaled(loss)
                except Exception:  # backward itself raises the error
                    pass
            if value is None or not value <= light.alarm:
                light.leave()
                return ours(loss) if alone else ours(loss, **options)
            if light.listens:
                fronted.begun = False
            light.passes += 1
            light.loss += value
            if not light.marked:
                light.marks[NOW], light.marked = light.mark, True
            light.running = True
            try:
                return plain(loss) if alone else plain(loss, **options)
            finally:
                light.running = False
                if light.reduces:
                    light.reduces, light.marks[NOW] = False, light.mark

        backward.__doc__, backward.__name__, backward.__wrapped__ = plain.__doc__, plain.__name__, ours
        self._backward = backward
        return backward

    def sums(self):
        """Called when the last sum over ranks of a pass begins. The heartbeat shows from then on that this rank may wait
        for others."""
        if self.running:
            self.reduces, self.marks[NOW] = True, monotonic_ns() << 4 | COLLECTIVE

    def scaled(self, loss):
        """Returns the loss before the scaler has scaled it; None if it is not known, because the trainer changed the scaled loss."""
        made_of = Scaling.source(loss)
        if made_of is None:
            self._pause()
        return None if made_of is None else made_of.item()

    def _set_alarm(self, losses):
        """Computes the alarm from the losses of the steps since it was set."""
        count, mean, variance = self._level
        for value in losses:
            count += 1
            apart = value - mean
            mean += apart / 64
            variance += (apart * apart - variance) / 64
        self._level = count, mean, variance
        self.alarm = max(mean + 6 * math.sqrt(variance), 1.5 * mean) if count >= 16 else math.inf
        self.alarm = min(self.alarm, 1.7e308)  # infinity is notable

    def keeper(self, optimizer):
        """Called after a step of the optimizer. Keeps the step's values. The values of some steps are stored together,
        while the code that stores them is in the caches."""
        light, rows, now, several, number = self, self.rows, monotonic_ns, self._rates, float

        def stepped(norm=None, more=None):
            try:
                at, passes, groups = now(), light.passes, optimizer.param_groups
                rate = groups[0]["lr"]
                if len(groups) > 1 or rate.__class__ is not number:
                    rate = several(groups)
                if light.clipped:
                    known = light.norm()
                    norm = known if norm is None else norm
                scale = None if light.scaler is None else light.scale()
                rows.append((at, passes, light.loss, light.tokens, rate, norm, scale, more))
                light.passes, light.loss, light.tokens, light.zeroed, light.begun = 0, 0.0, 0, False, False
                if at > light.until or len(rows) >= light.due or not passes or light.waiting:
                    light.ended(passes)
            except Exception as error:  # no error of this package may end the trainer's step
                light.failed(error)

        return stepped

    def screens(self):
        """Called before the update of a screened step. Returns False if the step must be a whole one, because
        something is notable in it."""
        try:
            why = self._screen.before(self.step)
            if why is None:
                self.screening = True
                return True
            self._watch.noted = why
            self.leave()
        except Exception as error:
            self.failed(error)
        return False

    def screened(self, stepped):
        """Called after the update of a screened step."""
        self.screening = False
        more, whole = None, False
        try:
            step = self.step
            more, self._watch.noted, whole = self._screen.after(step)
            self._screened = self._screen.next(step + 1)
            self.at = self._screened - self._first
        except Exception as error:
            whole = True
            self._watch._failed("light step", error)
        stepped(self._screen.norm, more)
        if whole:
            self._watch._guarded(self.leave)

    @staticmethod
    def _rates(groups):
        return [float(group["lr"]) for group in groups[:RATES]]

    def scale(self):
        """Returns the scale of the step that ends."""
        Scaling.step_ends()
        return self.scaler.get_scale()

    def norm(self):
        """Returns the norm before the clip of the step that ends, or None."""
        self.clipped = False
        return self._watch.clipped_norm()

    def failed(self, error):
        self._watch._failed("light step", error)
        self._watch._guarded(self.leave)

    def ended(self, passes):
        """Records the light steps that have ended; the last one had `passes` backward passes."""
        self._store()
        if self.waiting and any(p.grad is not None for p in self.waiting):
            self.waiting = self._watch._untrained.graded(self.waiting)
        if not passes and self._watch.standstill.most:  # another function than Tensor.backward ran the pass
            self._pause()
            self.leave()
        elif self._left <= 0 or self._ring.full():
            self.leave()

    def _store(self):
        rows = self.rows
        losses = self._ring.store(self._first, rows)
        self._first, self._left = self._first + len(rows), self._left - len(rows)
        rows.clear()
        self.at = self._screened - self._first
        self._set_alarm(losses)
        now = monotonic_ns()
        self.until, self.due, self.mark, self.marked = now + _LATEST, min(_AT_ONCE, self._left), now << 4 | BACKWARD, False

    # ---- its end -------------------------------------------------------------------------------

    def leave(self):
        """Makes the step that has begun a whole one; if none has begun, the next step."""
        if not self.on:
            return
        self.on = self.screening = False
        self._store()
        watch, run, loop = self._watch, self._run, self._loop
        run._next_step = max(run._next_step, self._first)
        watch.light = run._light = watch.hook.light = self.fronted.light = None
        if self._entered:
            self._entry.take()
        if self._within is not None:
            self._within.take()
        Backward.restore()
        loop.stages.now(NONE)
        watch.tokens, self.marks = self.tokens, [0]
        watch._batches.keep(self.inputs, self.words)
        self.inputs, self.words = (), None
        watch.light_ended(self._ring.written - self._since, self.zeroed, self._level)
        if self.begun:
            self.begun = False
            run._begin_step(self._first)
        if self.passes:  # the step that continues has had micro-batches
            loop.open()
            loop.losses.waiting.append(self.loss)
            loop.backwards = loop.micro = self.passes

    def end(self):
        """Does the same as leave(), and discards the step that has begun."""
        self.begun, self.passes = False, 0
        self.leave()

    def interrupted(self):
        """Called if the trainer records something itself within a step."""
        self._pause()
        self.open()

    def open(self):
        """Makes the step that has begun a whole one, without a pause of light steps after it."""
        self.leave()
        self._loop.open()

    def _pause(self):
        """Makes steps whole ones for a while, each time for longer."""
        self._not_before = self.step + self._rest
        self._rest = min(2 * self._rest, _LONGEST)
