"""Screens a light step by the norm of its gradients and by the update ratio. This needs none of the hooks of a whole
step."""

from time import thread_time_ns

from .budget import picked


class Screening:
    """The screening of one watch with one optimizer, alone in its run."""

    __slots__ = ("_watch", "_spent", "norm")

    def __init__(self, watch):
        self._watch, self._spent = watch, 0
        self.norm = None  # the norm of the gradients before a clip

    def next(self, step):
        """Returns the first step from `step` on that is screened."""
        return picked(step, self._watch._pace.every)

    def before(self, step):
        """Called before the update. Returns why the step must be a whole one, or None."""
        began, watch = thread_time_ns(), self._watch
        self.norm, why = watch._gradients.screen_light(step, watch.clips)
        if why is None and self.norm is not None:
            watch._ratio.before()
        self._spent = thread_time_ns() - began
        watch.budget.screened += self._spent
        return why

    def after(self, step):
        """Called after the update. Returns (values of the series from `update_ratio` on, each None if it is not known;
        why a measurement is due, or None; whether the next steps must be whole)."""
        began, watch = thread_time_ns(), self._watch
        moved = why = one = None
        if self.norm is not None:
            sums = watch._weights.checksums()
            moved, why = watch.screen_moved(sums)
            one = watch._weights.checksum(sums, watch._gradients.poisoned)
        whole, made = watch.scan_light(step), watch.made_light(step)
        spent = thread_time_ns() - began
        watch.budget.screened += spent
        watch._pace.cost((self._spent + spent) / 1e9)
        watch._pace.step_ended(watch.budget.period / 1e9, 0.0, step + 1)
        return (moved, made, None, one), why, whole or why is not None
