"""Steps that an optimizer's state has made: does it begin anew within the run? The evidence of health/optimizer-state."""

_LOOKED_AT = 4  # parameters of an optimizer
_ENOUGH = 8  # steps that were made before


def _made(optimizer):
    """(id of a parameter, the steps that its state has made), or None. Not of a device: nobody waits for it."""
    looked = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            made = state.get("step") if state else None
            if made is not None:
                return (id(parameter), int(made)) if getattr(made, "is_cpu", True) else None
            looked += 1
            if looked == _LOOKED_AT:
                return None
    return None


class Restarts:
    """Of one run's loop: of the optimizer that steps first."""

    def __init__(self, run):
        self._run, self._parameter, self._last, self._told = run, None, 0, 0
        self._step = 0

    def after_update(self, optimizer):
        """In the open step."""
        now = _made(optimizer)
        if now is None:
            return
        parameter, made = now
        if self._parameter is None:
            self._parameter = parameter
        if parameter != self._parameter:
            return
        step = self._run._step
        since, self._step = max(1, step - self._step), step
        anew = made <= since and made <= self._last and self._last >= _ENOUGH  # a step back to a checkpoint has more
        if anew or (made > self._told and made & (made - 1) == 0):
            self._run._own_scalar("optimizer.step", made)
            self._told = max(self._told, made)
        self._last = made
