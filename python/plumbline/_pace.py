"""How often something of a known cost is done."""

_MOST_EVERY = 1024  # steps between two of them at most


class Pace:
    """Every how many steps something of a known cost is done, so that it stays a share of the time.

    Powers of two: ranks that differ still do it in the same steps, at the rarer ones' pace. Which step of `every` is drawn as
    the agent's cadence draws it (Picked, in agent/core/sites/cadence.h), so that none of a small period is missed.
    """

    def __init__(self, share, every=1):
        """share: of a step's time, what it may cost. every: until step_ended() is called, which no run calls that is not governed."""
        self._share = share
        self.every, self._cost = every, 0.0

    def due(self, step):
        block = step // self.every
        if block & (block - 1) == 0:
            return step == block * self.every
        return (step ^ step >> 1 ^ step >> 3) & (self.every - 1) == 0

    def step_ended(self, period, apart=0.0):
        """`period`: seconds of CPU time that a step takes. `apart`: what a step costs that is made for it alone."""
        every, allowed = 1, self._share * period
        while every < _MOST_EVERY and self._cost + (apart if every > 1 else 0) > every * allowed:
            every *= 2
        self.every = every

    def cost(self, seconds):
        """Of CPU time. The first ones are dearer than the rest. What is taken for it, in ns."""
        self._cost = seconds if not self._cost else min(1.1 * self._cost, seconds)
        return int(1e9 * self._cost)
