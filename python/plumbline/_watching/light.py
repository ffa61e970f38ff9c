"""Steps in which nothing is due, of a plain loop: the loss, the rates, the gradient's norm and the tokens are stored into memory that the
agent reads (plumbline/steps.h), and no call is made into the library.

A step is whole again when a look is due, and at once when something is notable in it or the trainer itself records something.
"""

import ctypes
import math
import platform
import sys
from threading import get_ident
from time import monotonic_ns

from .._library import NO_STEP
from .averages import Averages
from .modules import Backward
from .scaling import Scaling
from .stages import BACKWARD, NONE, NOW

_HEAD, _WORDS, _STEPS = 8, 16, 1024  # of plumbline_steps_t
_READ = 1
_ENDED, _GIVEN, _VALUES = 1, 2, 4  # of one step, which begins with its number
_SERIES = ("loss", "grad_norm", "lr", "lr.1", "lr.2", "lr.3", "tokens")
_TOKENS, _RATES = len(_SERIES) - 1, 4
_FULL = _STEPS - 64
_FIRST = 4  # steps that are whole in any case
_PAID = 0.25  # of the budget: what a whole step may cost before steps are light
_MOST = 4096  # light steps in a row
_REST, _LONGEST = 64, 1 << 16  # whole steps after the trainer has recorded something itself
_ORDERED = platform.machine().lower() in ("x86_64", "amd64")  # stores are seen in their order


class Light:
    """Of one watch that is alone in its run's loop, with one optimizer."""

    MOST_WAITING = 32  # parameters without a gradient so far, which each step is asked for

    def __init__(self, watch, run, loop, plain):
        """`plain`: nothing about the trainer forbids it."""
        self._watch, self._run, self._loop, self._plain = watch, run, loop, plain and _ORDERED and run._budget.governed
        self._words = self._values = None  # of the memory
        self._written, self._since, self._step = 0, 0, 0
        self._left = 0
        self._loss, self._passes = 0.0, 0
        self._count, self._mean, self._variance, self._alarm = 0, 0.0, 0.0, -math.inf
        self._running, self.thread, self._waiting = False, None, ()
        self._rest, self._not_before = _REST, _FIRST
        self._optimizer = watch.optimizers[0] if watch.optimizers else None
        self.on, self.zeroed, self._begun = False, False, False  # the trainer has begun the step itself
        self.trains, self.place, self.words, self.tokens = True, None, None, 0  # of forward passes; the newest one's keywords
        self._marks, self.grad_enabled = None, sys.modules["torch"].is_grad_enabled

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
        if (self._words is None and not self._open()) or not Backward.lighten(self):
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
        self.trains, self.place, self.words, self.tokens = watch.hooked.training, watch.place, None, watch.tokens
        self._marks = self._loop.stages.marks()
        watch.light_begins()
        watch.light = run._light = watch.hook.light = self

    def begins(self, number):
        """The trainer begins a step itself. False: it is a whole one."""
        if number == self._step and not self._begun:
            self._begun = True
            return True
        self.end()
        return False

    # ---- a light step --------------------------------------------------------------------------

    def forward(self, module, inputs, words):
        """A forward pass in a mode in which the steps are not: BeforeForward handles the others. False: it is for the hooks of whole steps."""
        if not self.grad_enabled():
            self._loop.stages.evaluates()
            return True
        if module.training is self.trains:
            return True  # in eval mode
        self._watch._guarded(self.interrupted)  # left in eval mode, or back from it: noted in a whole step
        return False

    def backward(self, plain, ours):
        """What takes the place of Tensor.backward (`plain`), and of our function for whole steps."""

        def backward(loss, *arguments, **options):
            """One frame: each costs some microseconds where all caches are the trainer's."""
            if self._running:
                return plain(loss, *arguments, **options)
            if not self.on:
                return ours(loss, *arguments, **options)
            value = math.inf
            if not arguments and "gradient" not in options and get_ident() == self.thread and self._passes < self._most:
                try:
                    value = loss.item()
                except Exception:  # what backward itself will say
                    pass
            if not value <= self._alarm:
                self.leave()
                return ours(loss, *arguments, **options)
            self._passes += 1
            self._loss += value
            self._count += 1
            apart = value - self._mean
            self._mean += apart / 64
            self._variance += (apart * apart - self._variance) / 64
            if self._marks is not None:
                self._marks[NOW] = monotonic_ns() << 4 | BACKWARD
            self._running = True
            try:
                return plain(loss, *arguments, **options)
            finally:
                self._running = False

        backward.__doc__, backward.__name__ = plain.__doc__, plain.__name__
        return backward

    def _set_alarm(self):
        usual = self._count >= 16
        self._alarm = max(self._mean + 6 * math.sqrt(self._variance), 1.5 * self._mean) if usual else math.inf
        self._alarm = min(self._alarm, 1.7e308)  # infinity is notable

    def ended(self):
        """The optimizer has stepped."""
        try:
            words, values, at = self._words, self._values, _HEAD + self._written % _STEPS * _WORDS
            words[at] = self._step
            words[at + _ENDED] = monotonic_ns()
            given, place, seen = 4, at + _VALUES, self._passes
            if seen:
                given, values[place] = 5, self._loss
            groups = self._optimizer.param_groups
            values[place + 2] = groups[0]["lr"]
            if len(groups) > 1:
                for number in range(1, min(len(groups), _RATES)):
                    given |= 4 << number
                    values[place + 2 + number] = groups[number]["lr"]
            if self._watch.clips:
                norm = self._watch.clipped_norm()
                if norm is not None:
                    given |= 2
                    values[place + 1] = norm
            if self.tokens:
                values[place + _TOKENS] = self.tokens
                given |= 1 << _TOKENS
                self.tokens = 0
            words[at + _GIVEN] = given
            self._written += 1
            words[0] = self._written
            self._run._next_step = self._step = self._step + 1
            self._loss, self._passes, self.zeroed, self._begun = 0.0, 0, False, False
            if self._waiting and any(p.grad is not None for p in self._waiting):
                self._waiting = self._watch._untrained.graded(self._waiting)
            self._left -= 1
            if not seen and self._watch.standstill.most:  # another function than Tensor.backward made the pass
                self._pause()
                self.leave()
            elif not self._left & 7:
                self._set_alarm()
                if self._left <= 0 or self._written - words[_READ] > _FULL:
                    self.leave()
        except Exception as error:  # nothing of ours may end the trainer's step
            self._watch._failed("light step", error)
            self._watch._guarded(self.leave)

    # ---- its end -------------------------------------------------------------------------------

    def leave(self):
        """The next step is a whole one, or the one that has begun."""
        if not self.on:
            return
        self.on = False
        watch, run, loop = self._watch, self._run, self._loop
        watch.light = run._light = watch.hook.light = None
        Backward.restore()
        loop.stages.now(NONE)
        watch.tokens, self._marks = self.tokens, None
        if self.words:
            watch._batches.keep(self.words)
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
        self._pause()
        self.leave()
        self._loop.open()

    def _pause(self):
        """Steps are whole for longer each time."""
        self._not_before = self._run._next_step + self._rest
        self._rest = min(2 * self._rest, _LONGEST)
