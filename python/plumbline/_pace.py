"""How often something of a known cost is done."""

_MOST_EVERY = 1024  # steps between two of them at most
_DENSE = 8  # steps between two in the first 256; later a sixteenth to a 32nd of the steps so far: 20 of them, evenly, in 160 steps
_AHEAD = 0.005  # s that they may cost over their share


class Pace:
    """Every how many steps something of a known cost is done, so that it stays a share of the time.

    Powers of two: ranks that differ still do it in the same steps, at the rarer ones' pace. Which step of `every` is drawn as
    the agent's cadence draws it (Picked, in agent/core/sites/cadence.h), so that none of a small period is missed.
    """

    def __init__(self, share, every=1, planned=1, ahead=_AHEAD):
        """share: of a step's time, what it may cost. every: until step_ended() is called, which no run calls that is not governed. planned: times the
        share, for those that are planned. ahead: s that they may cost over their share."""
        self._share, self._planned, self._most_ahead = share, planned, ahead
        self.every, self._cost, self._ahead = every, 0.0, ahead

    def due(self, step):
        block = step // self.every
        if block & (block - 1) == 0:
            return step == block * self.every
        return (step ^ step >> 1 ^ step >> 3) & (self.every - 1) == 0

    def step_ended(self, period, apart, step):
        """Before step `step`. `period`: seconds of CPU time that one takes. `apart`: what a step costs that is made for it alone.

        As many as the rules need of a run that ends in some hundred steps, at up to `planned` times the share; and a few, whatever they cost, while
        `ahead` lasts."""
        every, allowed = 1, self._share * period
        self._ahead = min(self._most_ahead, self._ahead + allowed)
        while every < _MOST_EVERY and self._cost + (apart if every > 1 else 0) > every * allowed:
            every *= 2
        doublings = step.bit_length()
        planned = max(1, every // self._planned, _DENSE, 1 << max(0, doublings - 5))
        if self._ahead > 0:
            planned = min(planned, max(_DENSE, 1 << max(0, doublings - 2)))
        self.every = min(every, planned)

    def cost(self, seconds):
        """Of CPU time. The first ones are dearer than the rest. What is taken for it, in ns."""
        self._ahead -= seconds
        self._cost = seconds if not self._cost else min(1.1 * self._cost, seconds)
        return int(1e9 * self._cost)
