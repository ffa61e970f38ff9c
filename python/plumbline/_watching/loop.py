"""The trainer's loop, common to the watches of a run: its steps, and the model to which each loss belongs.

Each model has a watch, but a step belongs to the loop: if two calls watch the two models of a GAN, each model
is updated once in a step.
"""

import math
import sys
from threading import get_ident

from .._gradients.leftover import few
from .._kinds import KIND_TENSOR
from .._library import CAPTURING, NO_STEP
from .._metrics.logged import Logged
from .._metrics.loggers import Loggers
from .._screen import look
from .graph import Tokens
from .losses import Losses, numbered
from .restarts import Restarts
from .scaling import Scaling
from .sides import Sides
from .stages import Stages

_FARTHEST = 2.0**53  # a larger step number is not exact in a double
_FEWEST, _LOSSLESS = 3, 32  # number of updates without a loss: _LOSSLESS are reported at once, _FEWEST or more at the end
_NO_LOSS = ("call backward() on the loss (with per-sample losses, backward(weights) of one sign), or record it by run.scalar(\"loss\", value)")
_ANEW = 8  # the most updates of an optimizer that replaced another one a few steps ago
_IDLE = 3  # if a model is neither called nor updated in this many steps of others, one of the same kind has replaced it


def _steps_made(optimizer):
    """Returns the steps that its state has counted; 0 if it does not count them."""
    for state in optimizer.state.values():
        made = state.get("step") if isinstance(state, dict) else None
        if made is not None:
            made = float(made)
            return int(made) if 0 < made < _FARTHEST else 0
    return 0


class Loop:
    """The loop of one run."""

    def __init__(self, run):
        self._run, self.watches = run, []
        self.stepped = set()  # ids of the optimizers that have stepped since the step began
        self.cleared_last = None
        self.backwards, self.micro = 0, 0  # number of passes of the step; number of passes since an update
        self.own_step = False  # whether the open step was begun by this loop, which then ends it
        self.dropped = False  # whether the gradients of a pass were cleared before another pass of the same step
        self._lossless, self._has_loss = 0, False  # number of updates without a loss so far; whether a loss was seen
        self._repeated = False
        self._knows_cpu = hasattr(sys.modules["torch"].Tensor, "is_cpu")  # reading `device` creates an object: 20 us if nothing is cached
        self.losses, self.stages = Losses(), Stages(run)
        self.restarts, self.tokens, self.sides = Restarts(run), Tokens(run), Sides(run)
        # Number of passes of the run; whether an update was made; some weights as the first pass found them.
        self._passes, self._updated, self._began_with = 0, False, None
        self._pass = None  # the backward pass that was counted last
        self.given_loss = None  # a framework's scale of the pass that begins: the loss that backward gets is scaled
        self.jumped = False  # whether the loss of the newest pass is notable
        self._divided = None  # divisor of the last pass's loss: the scale of a scaler whose scale() was not called for it

    # ---- its watches ---------------------------------------------------------------------------

    def join(self, watch, optimizers, first):
        if not self.watches:
            self.stages.hook()
            Scaling.add(self)
            if self._run._logged is None:
                self._run._logged = Logged(self._run)
            Loggers.add(self._run._logged)
        self.watches.append(watch)
        self.losses.join(optimizers, first)
        if len(self.losses.optimizers) > 1 and self.partly not in self._run._at_step_end:
            self._run._at_step_end.append(self.partly)

    def leave(self, watch):
        if watch in self.watches:
            self.watches.remove(watch)
            self.losses.leave(watch.optimizers)
        if self.watches:
            return
        self.stages.remove()
        Scaling.remove(self)
        Loggers.remove(self._run._logged)
        if self.partly in self._run._at_step_end:
            self._run._at_step_end.remove(self.partly)
        if self.own_step:  # otherwise no code would end the step
            self.own_step = False
            self._run._end_step()

    def run_ends(self):
        """Called before the run is closed. Checks whether no optimizer has stepped at all, and whether no loss was seen."""
        if not self._has_loss and _FEWEST <= self._lossless < _LOSSLESS:
            self._note_lossless()
        if self._updated or not self.watches or self._run._step == NO_STEP or not self._began_with:
            return
        moved = any(not before.equal(p.detach()) for p, before in self._began_with)
        self._run._own_scalar("trained/passes", self._passes)
        self._run._own_scalar("trained/moved", moved)
        if self.own_step:
            self.own_step = False
            self._run._end_step()

    @property
    def optimizers(self):
        return [o for watch in self.watches for o in watch.optimizers]

    # ---- steps ---------------------------------------------------------------------------------

    def open(self):
        """Begins a step of ours, if the trainer has none of its own."""
        run = self._run
        if run._step != NO_STEP or run._explicit_steps:
            return
        if run._next_step == 0:
            self._go_on()
        run._begin_step(run._next_step)
        self.own_step = run._step != NO_STEP

    def _go_on(self):
        """After a resume, continues with the step number of the loaded optimizer, if it counts its steps."""
        counted = [steps for watch in self.watches for steps in watch.framework_steps()]
        made = max(counted or map(_steps_made, self.optimizers), default=0)
        if made > 0:
            self._run._next_step = made
            print(f"plumbline: steps continue at {made}, the step count of the optimizer's state", file=sys.stderr)

    def partly(self):
        """Called when the trainer ends its step itself before all of the optimizers have stepped in it."""
        if self.stepped and not self.own_step and self.watches:
            self.watches[0]._guarded(self.close)

    def close(self, carry=False):
        """Ends a step. `carry`: values that were computed since the last update belong to the next step."""
        updated = bool(self.stepped)
        if len(self.watches) > 1 and updated:
            self._retire()
        for watch in self.watches:
            watch.observe_step(not watch.ids.isdisjoint(self.stepped))
        self.stepped.clear()
        losses = self.losses.take(carry)
        if len(self.watches) == 1 and updated and not carry:
            factor = self.watches[0].loss_factor(self.backwards)
            losses = losses if factor == 1 else [(name, [loss * factor for loss in each]) for name, each in losses]
            if self.dropped and self.watches[0].gets_others():  # each pass had its own gradients, and the optimizer got those of several
                losses = [("partial_loss", each) for _, each in losses]
        if updated:
            self._look_for_loss(bool(losses))
        if updated and self.watches and (self.backwards > 1 or self.tokens.several):
            self.watches[0]._guarded(self.tokens.step_ends, losses, self.backwards)
        self._repeated = self.dropped = False
        Scaling.step_ends()
        passes = self.backwards
        self.backwards, self.micro = (self.micro, self.micro) if carry else (0, 0)
        for watch in self.watches:
            watch.record_scalars(losses)
            losses = ()  # only the first watch gets them
        if updated and self.watches and self._run._logged is not None:
            self.watches[0]._guarded(self._run._logged.step_ends, passes)
        if self.own_step:
            self.own_step = False
            self._run._end_step()
        for watch in list(self.watches):
            watch.step_over(len(self.watches), watch is self.watches[0])

    def _look_for_loss(self, seen):
        """Called after an update, with a loss that was seen or without."""
        self._has_loss |= seen
        self._lossless += not self._has_loss
        if self._lossless == _LOSSLESS and not self._has_loss:
            self._note_lossless()

    def _note_lossless(self):
        self._run._declare_site(KIND_TENSOR, "the loss", "unseen: " + _NO_LOSS)

    def _retire(self):
        """Finds a model that was watched before others and has not been trained since then: they have replaced it."""
        for watch in self.watches:
            watch.idle = 0 if watch.passed or not watch.ids.isdisjoint(self.stepped) else watch.idle + 1
            watch.passed = False
        newest = self.watches[-1]
        gone = [w for w in self.watches if w is not newest and w.idle >= _IDLE and w.kind == newest.kind] if newest.idle == 0 else ()
        # A copy continues the same series; a model that starts again has a curve of its own.
        series = "loss" if _steps_made(newest.optimizers[0]) > _ANEW else numbered("loss", newest._number)
        for watch in gone:
            self.losses.retire(watch.optimizers, series)

    # ---- backward passes and updates -----------------------------------------------------------

    def backward(self, number, loss):
        """Records that the pass of that number begins; the first watch that reports it counts it. Returns whether its loss is NaN or infinite."""
        if self._pass == number:
            return False
        self._pass = number
        if self.stepped and self.micro == 0:
            self.watches[0]._guarded(self.sides.backward_begins, self.watches, self.stepped)
        self.backwards += 1
        self.micro += 1
        if not self._updated:
            self._not_updated()
        watch = self.watches[0]
        watch._guarded(self.tokens.backward_begins, loss, watch._pace.due(self._run._step))
        loss, lost = self._seen(loss)
        if not self._repeated:  # the loss of a step is the one that it began with
            self.losses.waiting.append(loss)
        if self.jumped:
            for one in self.watches:
                one._guarded(one._batches.is_notable)
        return lost

    def _not_updated(self):
        """Counts passes while no update has been made, and keeps some weights."""
        self._passes += 1
        if self._began_with is None:
            some = few([p for _, p in self.watches[0]._trained if p.device.type == "cpu"])
            self._began_with = [(p, p.detach().clone()) for p in some]

    def scaler(self):
        """Returns the given loss scaler, or the one that has scaled a loss; None if there is none."""
        given = self._given_scaler()
        return Scaling.scaler() if given is None else given

    def _given_scaler(self):
        return next((watch.scaler for watch in self.watches if watch.scaler is not None), None)

    def _scale(self):
        """Returns the factor by which a loss is too large, if no scaler was seen to scale it; or None."""
        given = self._given_scaler()
        if given is None and Scaling.scales_this_step():  # the trainer divides the scaled loss: scaler.scale(loss) / k
            given = Scaling.scaler()
        if given is None:
            scale = next((watch.frame_scale() for watch in self.watches), 1.0)
            return None if scale == 1 else scale
        return getattr(given, "_scale", None)

    def applied_scale(self):
        """Returns the factor by which the losses of this step were enlarged. Recorded losses and gradients are divided
        by it."""
        if self._divided is not None:
            return float(self._divided)
        scaler = Scaling.scaler() if Scaling.scales_this_step() else None
        return float(getattr(scaler, "_scale", 1.0)) if scaler is not None else 1.0

    def keep_last(self, passes):
        """Keeps only the last of the waiting backward passes: those that belong to the next step."""
        self.losses.waiting = self.losses.waiting[-passes:]
        self.backwards = self.micro = min(passes, self.micro)

    def scales(self, scaler):
        """Called when a scaler has scaled a loss. Light steps of another scaler, or of none, end."""
        light = self._run._light
        if light is not None and light.scaler is not scaler and light.thread == get_ident():
            light.leave()

    def scaler_updates(self):
        """Called when the scaler is about to change its scale, after its step(). If no update was made since the
        backward pass, the scaler has skipped it: a light step becomes a whole one."""
        light = self._run._light
        if light is not None and light.scaler is not None and light.passes and light.thread == get_ident():
            light.leave()
        if self.watches and self.backwards and not self.stepped:
            self.watches[0]._guarded(self.close)

    def _seen(self, loss):
        """Returns (the loss, whether it is NaN or infinite). On a device, does not wait for the value."""
        made_of = Scaling.source(loss) if self.given_loss is None else self.given_loss
        scale = self._divided = self._scale() if made_of is None else None
        loss, self.jumped = loss if made_of is None else made_of, False
        if not (loss.is_cpu if self._knows_cpu else loss.device.type == "cpu"):
            return (loss.detach() if scale is None else loss.detach() / scale), False
        value = loss.item() if scale is None else (loss.detach() / scale).item()
        several = len(self.watches) > 1 or len(self.watches[0].optimizers) > 1
        why = self.watches[0].screen.loss(value, (self.cleared_last, *self.stepped) if several else None)
        look(self._run, why)
        self.jumped = why is not None
        return value, why is not None and not math.isfinite(value)

    def cleared(self, optimizer, watch):
        """Called for zero_grad after a backward pass without a step: a loss scaler skipped the step, or the pass had
        another purpose (a sharpness, a log), or a closure runs again."""
        self.cleared_last = id(optimizer)
        if watch.in_closure:
            self._repeated, self.backwards, self.micro = bool(self.losses.waiting), 0, 0
        elif self.backwards and not self.stepped:
            if watch.standstill.scaled():
                self.close()
            else:  # this backward pass belongs to no update: the step continues
                self.losses.drop()
                self.dropped = True
                self.backwards, self.micro = 0, 0
                for one in self.watches:
                    one.tokens = 0

    def begin_update(self, optimizer):
        if id(optimizer) in self.stepped:  # one of several optimizers may step more often than the others
            self.close(carry=True)
        if self._run._step == NO_STEP:
            self.open()
        self.restarts.before_update(optimizer)
        if len(self.losses.optimizers) > 1:
            self.sides.before_update(optimizer)

    def end_update(self, optimizer):
        self._updated, self._began_with = True, None
        self.watches[0]._guarded(self.restarts.after_update, optimizer)
        self.losses.used(optimizer, bool(self.stepped))
        self.stepped.add(id(optimizer))
        self.micro = 0
        if len(self.stepped) == len(self.losses.optimizers):
            self.close()

    def takes(self, loss):
        return self._run._step < CAPTURING and loss.numel() == 1
