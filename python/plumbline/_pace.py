"""The frequency of an action with a known cost."""

from ._watching.budget import picked

_MOST_EVERY = 1024  # most steps between two actions
# Most steps between two planned actions in the first 256 steps (20 actions in 160 steps); later, a sixteenth to a 32nd
# of the steps so far.
_DENSE = 8
_NEVER = 1 << 62
_AHEAD = 0.005  # seconds that the actions may cost beyond their share


class Pace:
    """Determines the number of steps between two actions of a known cost, so that they stay within a share of the
    time.

    The numbers are powers of two: ranks with different numbers still act in the same steps, at the larger number. The
    step within each `every` is drawn as in the agent's cadence (Picked, in agent/core/sites/cadence.h), so that no
    fault with a small period is missed.
    """

    def __init__(self, share, every=1, planned=1, ahead=_AHEAD):
        """share: the share of a step's time that the actions may cost. every: the interval until step_ended() is
        called; a run without a budget never calls it. planned: the factor of the share for planned actions. ahead: the
        seconds that the actions may cost beyond their share."""
        self._share, self._planned, self._most_ahead = share, planned, ahead
        self.every, self._cost, self._ahead = every, 0.0, ahead

    def due(self, step):
        block = step // self.every
        if block & (block - 1) == 0:
            return step == block * self.every
        return (step ^ step >> 1 ^ step >> 3) & (self.every - 1) == 0

    def step_ended(self, period, apart, step, acted=False):
        """Called before step `step`. `period`: seconds of CPU time of a step. `apart`: cost of a step that is made only for the action.
        `acted`: the last step was such a one.

        Allows as many actions as the rules need in a run of some hundred steps, at up to `planned` times the share. A
        few more are allowed at any cost until `ahead` is used up.
        """
        every, allowed = 1, self._share * period
        self._ahead = min(self._most_ahead, self._ahead + allowed) - (apart if acted else 0)
        while every < _MOST_EVERY and self._cost + (apart if every > 1 else 0) > every * allowed:
            every *= 2
        doublings = step.bit_length()
        planned = max(1, every // self._planned, _DENSE, 1 << max(0, doublings - 5))
        if self._ahead > 0:
            planned = min(planned, max(_DENSE, 1 << max(0, doublings - 2)))
        self.every = min(every, planned)

    def cost(self, seconds):
        """Called with the CPU time of an action. The first ones cost more than the rest. Returns the known cost in ns."""
        self._ahead -= seconds
        self._cost = seconds if not self._cost else min(1.1 * self._cost, seconds)
        return int(1e9 * self._cost)


class PacedSums:
    """Chooses the steps of a run in which sums over ranks are measured. The step's number alone decides, so ranks choose
    the same steps without a message."""

    def __init__(self, run, share):
        self._run, self._pace = run, Pace(share, run._budget.every)
        self.spent, self._any = 0, False  # spent: ns that sums cost in the open step

    def measures(self):
        """Returns whether sums that are due are measured in the open step."""
        run = self._run
        return not run._budget.governed or run._step <= run._looked_until or self._pace.due(run._step)

    def next(self, step):
        """Returns the next step, from `step` on, in which sums are measured; if none was measured so far, a step that does
        not come."""
        return picked(step, self._pace.every) if self._any else _NEVER

    def taken(self):
        """Returns the ns that sums have cost since the last call."""
        spent, self.spent = self.spent, 0
        if spent:
            self._any = True
            self._pace.cost(spent / 1e9)
        return spent

    def step_ended(self, period, apart, step, acted):
        """The same as Pace.step_ended."""
        self._pace.step_ended(period, apart, step, acted)
