"""Records of a step: due gradients, updates and weights, the loss, the rates."""

from time import thread_time

from .._library import NO_STEP
from .._screen import look
from .budget import BUFFERS
from .clipping import Clip
from .light_when import screens_whole
from .losses import numbered

_MOST_RATES = 4  # the most parameter groups whose learning rates are recorded


class Records:
    """The part of Watch that reads and records values. The attributes are made by Watch."""

    def _observe_gradients(self, optimizer, moved=False):
        """Observes the gradients and weights that are due. Called before the update, or after it (`moved`)."""
        step = self._run._step
        if step == NO_STEP:
            return
        if self._untrained.looks:
            self._guarded(self._untrained.before_update, optimizer)
        if self._shares.open:
            self._guarded(self._shares.before_update, self.clips)
        if self._kept is not None and self._kept.open:
            self._guarded(self._kept.before_update)
        paced = self._pace.due(step) or (self.budget.governed and step <= self._run._looked_until)
        if paced and not self._has_stepped():
            began = thread_time()
            if not moved:
                self._ratio.before()
            self._screening = thread_time() - began
        chosen = self._looks.chosen(step)
        if self._gradients.observe(optimizer, paced, self.scale, self.clips, chosen) is not None:
            self._observe_used_weights()  # on a device the value of the loss may not be known yet

    def looks(self):
        """Returns whether the gradients, or the updates made from them, are read in this step."""
        step = self._run._step
        chosen = self._looks.chosen(step)
        if chosen is not None:
            return self._pace.due(step) or bool(chosen)
        due = (self._gradients.due(one) or self._updates[id(one)].due(step) for one in self.optimizers)
        return self._pace.due(step) or any(due)

    def updates_due(self, updates, step):
        chosen = self._looks.chosen(step)
        return updates.due(step) if chosen is None else bool(chosen) and updates.kind is not None

    def clip(self, parameters, total, most):
        """Called when clip_grad_norm_ is about to clip, or has clipped, the gradients of `parameters`."""
        self.clips.append(Clip(parameters, total, most))
        self._light.clipped = True

    def loss_factor(self, micro):
        """Returns the factor between the losses of the step and those whose gradients the optimizer got."""
        try:
            if self._kept is None or not self._kept.open:
                return 1.0
            return self._kept.factor(micro, self._clipped, self._loop.applied_scale())
        except Exception as error:
            self._failed("loss_factor", error)
            return 1.0

    def gets_others(self):
        """Returns whether the optimizer got other gradients than the last of several backward passes left."""
        return self._kept is not None and self._kept.others

    def _screen_weights(self):
        began = thread_time()
        sums = self._weights.checksums()
        self._moved, why = self.screen_moved(sums)
        self._weights.record_checksum(sums, self._gradients.poisoned)
        look(self._run, why)
        self._run._spent += self._pace.cost(self._screening + self._gradients.seconds + thread_time() - began)

    def _set_paces(self, period, step):
        """Called before step `step`. `period`: seconds of a step. Decides how often steps are screened, and loads of experts measured."""
        apart = self.budget.base / 1e9 if self._looks.light else 0.0  # seconds of a whole step that is made for it
        own = apart if screens_whole(self) else 0.0
        self._pace.step_ended(period, own, step, acted=self._gradients.screened == step - 1)
        self.paced_sums.step_ended(period, apart, step, self._summed)
        if self._routers is not None:
            self._routers.pace.follow(period, apart, step)

    def scan_light(self, step):
        """Called after the update of a light step. Returns True if the next steps must be whole ones."""
        if self._untrained.scans(step):
            self._untrained.scan(step)
        return not self._untrained.settled

    def made_light(self, step):
        """Returns the step count of the optimizer's state, to be recorded in a light step, or None."""
        return self._loop.restarts.made(self.optimizers[0], step)

    def screen_moved(self, sums):
        """Returns (the update ratio or None, why a measurement is due or None)."""
        rates = [group["lr"] for one in self.optimizers for group in one.param_groups]
        moving = self._gradients.moving if all(rates) else ()
        return self._ratio.after(), self.screen.weights(self._weights.names, sums, moving)

    def _observe_used_weights(self):
        if not self._has_stepped():
            self._weights.observe_used(self._named(), self._updates.values())

    def _observe_weights(self):
        chosen = self._looks.chosen(self._run._step)
        if chosen is None or chosen:
            self._weights.observe(chosen)
        if chosen is None or BUFFERS in chosen:
            self._modules.observe_buffers()

    def record_scalars(self, losses):
        """Records losses, rates and counts. `losses`: (series, values) pairs, which only the first watch gets."""
        run, tokens = self._run, self.tokens
        self.tokens = 0
        if not self._forwards and not self._is_compiled:
            self._guarded(self._not_called)
        if run._step == NO_STEP:
            return
        for name, each in losses:
            loss = sum(map(float, each))
            if not isinstance(each[0], float):
                look(run, self.screen.loss(loss, name))  # this requests measurements of the next steps, because this step is nearly over
            run._own_scalar(name, loss)
            if name == "loss":
                self._loop.restarts.loss(loss)
        if tokens:
            run._own_scalar("tokens", tokens)
        scaler = self._loop.scaler() if self._loop.watches[:1] == [self] else None
        if scaler is not None and scaler.is_enabled():
            run._own_scalar("loss_scale", scaler.get_scale())
        # LBFGS is left out: its rate scales a direction, so that a step may be below a weight's last bit.
        known = [one for one in self.optimizers if type(one).__name__ != "LBFGS"]
        groups = [group for one in known for group in one.param_groups]
        for number, rate in enumerate(group["lr"] for group in groups[:_MOST_RATES]):
            run._own_scalar(numbered("lr", self._number + number), float(rate))
        moved, self._moved = self._moved, None
        if moved is not None:
            run._own_scalar(numbered("update_ratio", self._number), moved)
        if self._loop.watches[:1] == [self]:  # the loss is known, so copies from a device are complete
            self._guarded(self._digests.step_ends, self._ddp)

    # ---- of steps that are recorded by stores alone (light.py) ----------------------------------

    def light_begins(self):
        self._shares.remove()
        if self._accumulation is not None:
            self._accumulation.pause()
        if self._routers is not None:
            self._routers.training = False

    def light_ended(self, steps, zeroed, level):
        """Called when `steps` light steps were recorded."""
        if self._accumulation is not None:
            self._accumulation.resume()
        (self._zeroed.add if zeroed else self._zeroed.discard)(id(self.optimizers[0]))
        self.screen.set_level(level)
        self._light_steps += steps
        self._untrained.skipped(self.optimizers[0], steps)

    def clipped_norm(self):
        """Returns the norm before the clip of the light step that ends, or None."""
        clips, self.clips = self.clips, []
        return self._gradients.clipped(self.optimizers[0], clips)
