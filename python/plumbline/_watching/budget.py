"""The cost of a run for its trainer: a share of the CPU time of the training thread, from the first step on."""

import os
from time import clock_gettime_ns, thread_time_ns

SHARE = 0.01  # the budget if the trainer gives none
_UNIT = 200_000.0  # ns to measure one parameter, until the cost is known
_APART, _AT_ONCE = 16, 4  # a measurement may cost the budget of 16 whole steps; if most steps are light, 4 times the cost of a whole step
_LIGHT, _LIGHT_COLD = 4000.0, 20_000.0  # ns of a light step (docs/measurements/watch.md); the same if the trainer has filled the caches
_COLD_AFTER = 3_000_000.0  # ns of a step after which the trainer has filled the caches
_EVICTED = 1.3  # factor for hooks of whole steps and for our threads: they evict the trainer's caches (docs/measurements/precision.md)
_LATER = 1.5  # total cost of an observation, divided by its cost on the trainer's thread
_THREADS_EVERY = 20_000_000  # ns between two reads of our threads' clocks
_MOST_EVERY = 4096
_MOST_FIXED = 6  # the largest exponent of two of a fixed interval
_SLACK = 8  # the most that is saved for later: this many times the cost of one measurement
BUFFERS = ""  # the name that represents all buffers among the names of parameters
_LEAST = 0.25  # the least share of the budget for measurements


def picked(step, every):
    """Returns the first picked step from `step` on. One of `every` steps is picked (Picked, in
    agent/core/sites/cadence.h); `every` is a power of two."""
    block = step // every
    at = _pick(block, every)
    return at if at >= step else _pick(block + 1, every)


def _pick(block, every):
    if block & (block - 1) == 0:
        return block * every
    while every > 1:
        block = 2 * block + ((block ^ (block >> 2)) & 1)
        every //= 2
    return block


def _our_clocks():
    """Returns the numbers that Linux gives to the clocks of our threads in this process."""
    clocks = []
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/comm", encoding="utf-8", errors="replace") as file:
                if file.read().startswith("plumb"):
                    clocks.append(~int(task) << 3 | 6)
    except OSError:  # on another system, our threads are not counted
        pass
    return clocks


class Budget:
    """The budget of one run. `spent`: ns that hooks spent on the trainer's thread since the last account."""

    def __init__(self, every, budget):
        """The arguments are those of plumbline.init. If the trainer gives `every`, the budget is not used."""
        share = SHARE if budget is None else budget
        self.share = None if every or share >= 1 else share
        self.every = 1 << min(_MOST_FIXED, (every or 1).bit_length() - 1)  # steps between two screenings, if the budget is not used
        self.spent, self.balance = 0, 0.0
        self.screened = 0  # the same as `spent`, for light steps that were screened
        self.period = None  # ns of a step of the trainer's own, smoothed
        self.base = None  # ns that a step without a measurement costs, smoothed
        self.income = 0.0  # ns that measurements may cost in each step: the share without the bookkeeping; smoothed
        self.own, self.paid = 0.0, 0.0  # ns so far: those of the trainer; those of this package
        self._cpu, self._clocks, self._threads, self._requested = None, None, 0, 0

    @property
    def governed(self):
        return self.share is not None

    def account(self, light=0, looked=0):
        """Called at a step's end. `light`: number of light steps before it. `looked`: parameters that were measured
        in it."""
        now, spent, self.spent = thread_time_ns(), self.spent, 0
        before, self._cpu = self._cpu, now
        screened, self.screened = self.screened, 0
        looks = _EVICTED * (spent + screened)
        if before is None or now < before:  # this is the first step, or another thread makes the steps now
            self.balance -= looks if before is None else 0
            return
        book = light * self._light() + _EVICTED * self._of_threads(now)
        own = max(0.0, now - before - spent - screened - light * self._light())
        allowed = self.share * own
        income = max(allowed - book, _LEAST * allowed)
        self.own, self.paid, self.balance = self.own + own, self.paid + book + looks, self.balance + income - looks
        steps, period = light + 1, own / (light + 1)
        self.income += (income / steps - self.income) / (8 if self.period else 1)
        self.period = period if self.period is None else self.period + (period - self.period) / (2 if self.period > 2 * period else 8)
        if not looked:
            self.base = spent if self.base is None else self.base + (min(spent, 4 * self.base) - self.base) / 8

    def _light(self):
        """Returns the ns of a light step."""
        return _LIGHT + (_LIGHT_COLD - _LIGHT) * min(1.0, (self.period or 0.0) / _COLD_AFTER)

    def _of_threads(self, now):
        """Returns the ns that our threads have spent since the last call."""
        if now - self._requested < _THREADS_EVERY:
            return 0
        self._requested = now
        if self._clocks is None:
            self._clocks = _our_clocks() or None
        try:
            threads = sum(map(clock_gettime_ns, self._clocks or ()))
        except OSError:  # a thread has ended
            self._clocks, threads = None, self._threads
        spent, self._threads = max(0, threads - self._threads), threads
        return spent

    def left(self, light):
        """Returns the ns that measurements may cost in each step: the budget without the cost of the bookkeeping, or a
        quarter of the budget if that is more. `light`: most steps are light."""
        if self.period is None:
            return 0.0
        allowed = self.share * self.period
        return self.income if light else max(allowed - _EVICTED * (self.base or 0), _LEAST * allowed)


class Looks:
    """Chooses the parameters of a watch that are measured in a step: all that are due, or in turn as many as the
    budget allows."""

    def __init__(self, run, names, whole):
        """`whole`: all parameters are measured or none, because other ranks must choose the same ones. Then the step
        alone decides, not the debt: the steps of a rank with a longer interval are steps of every other rank."""
        self._run, self._budget, self._names, self.whole = run, run._budget, names, whole
        self._at, self._unit = 0, _UNIT  # index of the next parameter; ns that a measurement of one costs
        self.light = False  # most steps are light: a whole step is made for each measurement
        self._step, self._chosen = None, None
        self.every = 1
        self.seen = 0  # number of parameters measured in the open step

    def chosen(self, step):
        """Returns the names of the parameters that are measured in this step; None: all that are due."""
        if not self._budget.governed or step <= self._run._looked_until:
            return None  # the screening found something notable
        if step != self._step:
            self._step, self._chosen = step, self._choose(step)
        return self._chosen

    def _choose(self, step):
        budget = self._budget
        if not self._names or picked(step, self.interval()) != step or (budget.balance < 0 and not self.whole):
            return ()
        if step == 0 and not self.whole and self._names[0] != BUFFERS:
            return ()  # the first measurement is the most expensive: it waits until the budget allows it, except if there are buffers
        most = len(self._names) if self.whole else self.most()
        chosen = [self._names[(self._at + k) % len(self._names)] for k in range(most)]
        self._at = (self._at + most) % len(self._names)
        self.seen = most
        return frozenset(chosen)

    def interval(self):
        """Returns the number of steps between two measurements, a power of two. If several ranks measure, a debt makes
        it longer."""
        budget, every = self._budget, self.every
        if self.whole and budget.balance < 0:
            debt = -budget.balance / max(1.0, budget.left(self.light))
            while every < _MOST_EVERY and every < debt:
                every *= 2
        return every

    def next(self, step):
        """Returns the next step, from `step` on, in which the budget allows to measure parameters."""
        if self.whole:
            return picked(step, self.interval())
        budget = self._budget
        debt = -budget.balance / max(1.0, budget.left(True)) if budget.balance < 0 else 0
        return picked(step + int(debt), self.every)

    def most(self):
        """Returns how many parameters are measured in a step."""
        budget = self._budget
        spent = _AT_ONCE * budget.base if self.light else _APART * budget.left(False)
        return max(1, min(len(self._names), int(spent / self._unit)))

    def step_ended(self, spent):
        """Called with the ns that this package spent in the step. Computes the cost of a measurement, and the number of
        steps between two."""
        seen, self.seen = self.seen, 0
        budget = self._budget
        if seen and self._step:  # in the first step torch and the library allocate memory that they keep
            unit = max(1000.0, (spent - (budget.base or 0)) * _LATER / seen)
            self._unit += (min(unit, 4 * self._unit) - self._unit) / 4
        if budget.period is None:
            return
        cost = self._unit * (len(self._names) if self.whole else self.most()) + (budget.base if self.light else 0)
        every, left = 1, budget.left(self.light)
        while every < _MOST_EVERY and cost > every * left:
            every *= 2
        self.every = every
        budget.balance = min(budget.balance, _SLACK * cost)
