"""Steps in which nothing is due, of a plain loop: the loss, the rates, the gradient's norm and the tokens are stored into memory that the
agent reads (plumbline/steps.h), and no call is made into the library.

A step is whole again when a look is due, and at once when something is notable in it or the trainer itself records something.
"""

import ctypes
import math
import platform
from threading import get_ident
from time import monotonic_ns

from .._library import NO_STEP
from .averages import Averages
from .scaling import Scaling
from .stages import BACKWARD, NONE

_HEAD, _WORDS, _STEPS = 8, 16, 1024  # of plumbline_steps_t
_READ = 1
_STEP, _ENDED, _GIVEN, _VALUES = 0, 1, 2, 4  # of one step
_SERIES = ("loss", "grad_norm", "lr", "lr.1", "lr.2", "lr.3", "tokens")
_TOKENS = len(_SERIES) - 1
_FULL = _STEPS - 64
_FIRST = 4  # steps that are whole in any case
_PAID = 0.25  # of the budget: what a whole step may cost before steps are light
_MOST = 4096  # light steps in a row
_REST, _LONGEST = 64, 1 << 16  # whole steps after the trainer has recorded something itself
_ORDERED = platform.machine().lower() in ("x86_64", "amd64")  # stores are seen in their order


class Light:
    """Of one watch that is alone in its run's loop, with one optimizer."""

    MOST_WAITING = 32  # parameters without a gradient so far, which each step is asked for
    passes_loss = None  # of the process: the one whose steps are light now (a Light), which backward passes ask first

    def __init__(self, watch, run, loop, plain):
        """`plain`: nothing about the trainer forbids it."""
        self._watch, self._run, self._loop, self._plain = watch, run, loop, plain and _ORDERED and run._budget.governed
        self._words = self._values = None  # of the memory
        self._written, self._since, self._step = 0, 0, 0
        self._left, self._until_most = 0, 0
        self._loss, self._passes = 0.0, 0
        self._count, self._mean, self._variance, self._alarm = 0, 0.0, 0.0, -math.inf
        self._running, self.thread, self._waiting = False, None, ()
        self._rest, self._not_before = _REST, _FIRST
        self._optimizer = watch.optimizers[0] if watch.optimizers else None
        self.on, self.zeroed, self._begun = False, False, False  # the trainer has begun the step itself

    # ---- when ----------------------------------------------------------------------------------

    def _may(self):
        watch, run, loop = self._watch, self._run, self._loop
        if not self._plain or run._step != NO_STEP or run._next_step < self._not_before or run._next_step <= run._looked_until:
            return False
        if not self.worth():  # all of a step's facts are within the budget
            return False
        if len(loop.watches) != 1 or not watch.alone_in_process() or Averages.armed is not None or Scaling.scaler() is not None:
            return False
        return watch.allows_light()

    def worth(self):
        """Does a whole step cost too much of the budget?"""
        budget = self._run._budget
        return self._plain and budget.base is not None and budget.period is not None and budget.base > _PAID * budget.share * budget.period

    def step_ended(self):
        """A whole step of ours has ended."""
        if self._may():
            next_one = self._watch.next_whole(self._run._next_step)
            if next_one > self._run._next_step:
                self._begin(min(next_one - self._run._next_step, _MOST))

    def _open(self):
        run = self._run
        names = (ctypes.c_char_p * len(_SERIES))(*(name.encode() for name in _SERIES))
        where = ctypes.c_void_p()
        status = run._short.plumbline_steps(run._handle, names, len(_SERIES), ctypes.byref(where))
        if status < 0:
            run._check("steps", status)
        if not where.value:
            self._plain = False
            return False
        memory = memoryview((ctypes.c_uint64 * (_HEAD + _WORDS * _STEPS)).from_address(where.value)).cast("B")
        self._words, self._values = memory.cast("Q"), memory.cast("d")
        return True

    def _begin(self, steps):
        if self._words is None and not self._open():
            return
        watch, run = self._watch, self._run
        self._written, self._left, self._since = self._words[0], steps, self._words[0]
        self._step, self.thread = run._next_step, get_ident()
        self._loss, self._passes, self.zeroed = 0.0, 0, bool(watch._zeroed)
        self._count, self._mean, self._variance = watch.screen.level()
        self._most = max(1, watch.standstill.most)  # more passes than in the steps before: their gradients may be divided
        self._waiting = watch._untrained.waiting()
        self._set_alarm()
        self.on = True
        watch.light_begins()
        watch.light = run._light = Light.passes_loss = self

    def begins(self, number):
        """The trainer begins a step itself. False: it is a whole one."""
        if number == self._step and not self._begun:
            self._begun = True
            return True
        self.end()
        return False

    # ---- a light step --------------------------------------------------------------------------

    def passes(self, loss, arguments, options):
        """A backward pass begins. False: it is for the hooks of whole steps."""
        if self._running:
            return True
        if arguments or "gradient" in options or get_ident() != self.thread:
            self.leave()
            return False
        try:
            value = loss.item()
            usual = value <= self._alarm
        except Exception:  # what backward itself will say
            usual = False
        if not usual or self._passes >= self._most:
            self.leave()
            return False
        self._passes += 1
        self._loss += value
        self._count += 1
        apart = value - self._mean
        self._mean += apart / 64
        self._variance += (apart * apart - self._variance) / 64
        self._loop.stages.now(BACKWARD)
        return True

    def _set_alarm(self):
        usual = self._count >= 16
        self._alarm = max(self._mean + 6 * math.sqrt(self._variance), 1.5 * self._mean) if usual else math.inf
        self._alarm = min(self._alarm, 1.7e308)  # infinity is notable

    def ended(self):
        """The optimizer has stepped."""
        words, values, at = self._words, self._values, _HEAD + self._written % _STEPS * _WORDS
        words[at + _STEP] = self._step
        words[at + _ENDED] = monotonic_ns()
        given, place = 0, at + _VALUES
        if self._passes:
            given, values[place] = 1, self._loss
        watch = self._watch
        if watch.clips:
            norm = watch.clipped_norm()
            if norm is not None:
                given |= 2
                values[place + 1] = norm
        bit, place = 4, place + 2
        for group in self._optimizer.param_groups[:4]:
            values[place] = float(group["lr"])
            given |= bit
            bit, place = bit << 1, place + 1
        if watch.tokens:
            values[at + _VALUES + _TOKENS] = watch.tokens
            given |= 1 << _TOKENS
            watch.tokens = 0
        words[at + _GIVEN] = given
        self._written += 1
        words[0] = self._written
        self._step += 1
        self._run._next_step = self._step
        self._loss, self._passes, self.zeroed, self._begun = 0.0, 0, False, False
        self._left -= 1
        if self._waiting and any(p.grad is not None for p in self._waiting):
            self._waiting = watch._untrained.graded(self._waiting)
        if not self._left & 7:
            if self._left <= 0 or self._written - words[_READ] > _FULL:
                self.leave()
            else:
                self._set_alarm()

    # ---- its end -------------------------------------------------------------------------------

    def leave(self):
        """The next step is a whole one, or the one that has begun."""
        if not self.on:
            return
        self.on = False
        watch, run, loop = self._watch, self._run, self._loop
        watch.light = run._light = Light.passes_loss = None
        loop.stages.now(NONE)
        steps = self._written - self._since
        watch.light_ended(steps, self.zeroed, (self._count, self._mean, self._variance))
        if self._begun:
            self._begun = False
            run._begin_step(self._step)
        if self._passes:  # micro-batches of the step that goes on
            loop.open()
            loop.losses.waiting.append(self._loss)
            loop.backwards = loop.micro = self._passes

    def end(self):
        """The same, and the step that has begun is none."""
        self._begun, self._passes = False, 0
        self.leave()

    def interrupted(self):
        """The trainer records something itself: within a step."""
        began = self._run._next_step
        self.leave()
        self._loop.open()
        self._not_before = began + self._rest
        self._rest = min(2 * self._rest, _LONGEST)
