"""How often something of a known cost is done."""

from time import perf_counter

_LONGEST, _MOST_EVERY = 64, 1024  # steps between two of them at most; where a budget governs it


class Pace:
    """Every how many steps something of a known cost is done, so that it stays a share of the time.

    Powers of two: ranks that differ still do it in the same steps, at the rarer ones' pace. Which step of `every` is drawn as
    the agent's cadence draws it (Picked, in agent/core/sites/cadence.h), so that none of a small period is missed.
    """

    def __init__(self, share):
        """share: of a step's time, what it may cost."""
        self._share = share
        self.every, self._cost, self._began, self._period = 1, 0.0, None, None

    def due(self, step):
        block = step // self.every
        if block & (block - 1) == 0:
            return step == block * self.every
        return (step ^ step >> 1 ^ step >> 3) & (self.every - 1) == 0

    def step_began(self):
        now = perf_counter()
        if self._began is not None:
            period = now - self._began
            self._period = period if self._period is None else self._period + (period - self._period) / 8
            every, allowed = 1, self._share * self._period
            while every < _LONGEST and self._cost > every * allowed:
                every *= 2
            self.every = every
        self._began = now

    def step_ended(self, period, apart=0.0):
        """`period`: seconds of CPU time that a step takes. `apart`: what a step costs that is made for it alone."""
        every, allowed = 1, self._share * period
        while every < _MOST_EVERY and self._cost + (apart if every > 1 else 0) > every * allowed:
            every *= 2
        self.every = every

    def cost(self, seconds):
        """A pre-empted one is not its cost; the first ones are dearer than the rest. What is taken for it, in ns."""
        self._cost = seconds if not self._cost else min(1.1 * self._cost, seconds)
        return int(1e9 * self._cost)
