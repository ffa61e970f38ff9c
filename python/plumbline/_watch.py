"""run.watch(model, optimizer): the second of the two lines."""

import functools
import sys
from threading import get_ident
from time import thread_time, thread_time_ns

from ._compiled import compiles
from ._ddp import Hook, around
from ._library import NO_STEP
from ._optimizer_hooks import hook
from ._pace import Pace
from ._routers import OnlyHere, Routers, hook_forward
from ._screen import look
from ._shards import named_parameters, shard_names
from ._watching.averages import Averages
from ._watching.batches import Batches
from ._watching.budget import BUFFERS, Looks
from ._watching.clipping import Clip, Clipping
from ._watching.collectives import Sums
from ._watching.copies import Parting, copies_of, gradient_groups
from ._watching.frames import Framed
from ._watching.gradients import Gradients
from ._watching.kept import Kept
from ._watching.leftover import Leftover
from ._watching.light import Light
from ._watching.light_when import is_plain
from ._watching.losses import numbered
from ._watching.modes import Modes
from ._watching.modules import Backward, Modules
from ._watching.passes import Passes, place_of_ids, tokens_at
from ._watching.ratio import Ratio
from ._watching.shares import Shares
from ._watching.stages import BACKWARD, FORWARD, NONE
from ._watching.standstill import Standstill
from ._watching.untrained import Untrained
from ._watching.unwrap import holders
from ._watching.updates import Updates
from ._watching.weights import Weights
from ._watching.words import alone, processes, unseen_sums

_MOST_RATES = 4  # parameter groups whose learning rates are recorded
_SHARE = 0.0025  # of a step's time, for its screening


class Watch:
    """Watches one model and its optimizers until remove()."""

    def __init__(self, run, model, found, scaler, activations=None):
        """model: an unwrap.Model. found: [unwrap.Opened]."""
        self._run, self.scaler, self._given = run, scaler, model.given
        self.budget, self.light, self.ends_began, self._light_steps = run._budget, None, None, 0
        self._arms = False  # averages are listened for until the next step
        self._is_compiled, self._forwards, self._model, ddp = model.compiled, 0, model.module, model.ddp
        self._requested, self._activations = False, activations
        self.found, self.optimizers, self._loop = found, [one.inner for one in found], run._models_watched.loop(run)
        optimizers = self.optimizers
        self.ids = frozenset(map(id, optimizers))
        self._ddp = None
        self._ddp_pending = ddp is not None
        named = [name for name, _ in named_parameters(self._model)]
        self._number, self._prefix = run._models_watched.enter(self._given, optimizers, named)
        if ddp is not None:
            self._ddp = Hook(run, ddp, f"{self._prefix}gradients")
        names = {id(p): name for name, p in self._named()}
        self._updates = {id(one.inner): Updates(run, one.inner, names, one.pieces) for one in found}
        self._trained = [(name, p) for name, p in self._named() if p.requires_grad]
        self._zeroed = set()  # optimizers that have cleared their gradients since they stepped
        self._shards = {self._prefix + name for name in shard_names(self._model)}
        self._leftover = Leftover(run, self._trained, self._shards)
        parts = {names.get(id(piece.parameter)) for one in found for piece in one.pieces if not piece.whole}
        self._gradients = Gradients(run, found, self._trained, self._shards | parts, self._number, self._named)
        self._frames = {id(one.frame): one.frame for one in found if one.frame is not None}
        self.framed_due = False  # within a framework's step: updates are due
        self.screen = self._gradients.screen
        self._ratio, self._moved = Ratio(run._library.short, self._trained), None
        self._pace = Pace(_SHARE, run._budget.every)
        copies = copies_of(ddp, self._frames.values(), self._model)
        self._weights = Weights(run, self._model, self._prefix, copies, ddp, self._shards)
        buffers = [BUFFERS] if any(b.is_floating_point() for b in self._model.buffers()) else []  # the first: one look is enough
        names = self._weights.names
        everything = [*buffers, *names, *(name for name, _ in self._trained if name not in set(names))]
        self._looks = Looks(run, everything, self._weights.replicas is not None or processes() > 1)
        self.standstill = Standstill(run, self._given, optimizers, scaler, activations, self._trained)
        self.tokens, self.place = 0, None  # of the step; where a forward pass has its token ids
        self._accumulation, self._left = None, False
        self.in_closure = False
        self.clips, self._clipped = [], []  # of this step's gradients, by clip_grad_norm_; of the step that ends
        self.scale = 1.0  # by which the gradients of the step that is made are too large
        self._passes = Passes(self._model, self._before_forward_of_child)
        self._untrained = Untrained(run, self._model, self._prefix, self._trained, found, self._is_compiled, self._gradients.divide_again)
        self._modes = Modes(run, self._model, self._prefix, [name for name, _ in self._trained])
        self._averages = Averages(run, self._model, self._prefix)
        self._kept = Kept(self._trained) if len(found) == 1 and not self._frames else None
        self.thread = None  # of its forward passes
        self.passed, self.idle = False, 0  # called since the step began; steps of others in a row without that, and without an update
        self.kind = (type(self._model), tuple(named))
        self._shares = Shares(run, self._model, self._trained, self._is_compiled)
        self._batches = Batches(run, self._model)
        self._undo, self._routers = [self._untrained.remove, self._averages.remove, self._passes.remove, self._shares.remove], None
        self._loop.join(self, optimizers, self._number)
        self._undo.append(lambda: self._loop.leave(self))
        self.stages = self._loop.stages
        self.sums = Sums(run, self._loop, self._prefix, gradient_groups(self._given))
        self._undo.append(self.sums.remove)
        self._parting = None
        self._modules = Modules(run, self._model, activations, self._guarded, self._prefix)
        self._undo.append(self._modules.remove)
        self._light, self.noted = Light(self, run, self._loop), None  # why a look is due in the next step
        self._hook()
        self._watch_sums()
        self._light.plain = is_plain(self)
        if self._is_compiled:
            self._compiled_away()

    def _watch_sums(self):
        """Watches the sums of several processes; their group may be set up after the watch."""
        if self._ddp is None:
            self.sums.watch(unseen_sums(self))
            if self._parting is None and self.sums.watched and alone(self):
                self._parting = Parting(self._run, self.sums, self._weights.checksums)

    def held_by_none_of(self, optimizers):
        """Returns whether none of `optimizers` is watched here."""
        return not {id(o) for o in optimizers} & {id(o) for o in self.optimizers}

    def _named(self):
        return ((self._prefix + name, p) for name, p in named_parameters(self._model))

    # ---- what is hooked ------------------------------------------------------------------------

    def _hook(self):
        self.hooked = self._given
        self.hook, undo = hook_forward(self.hooked, self._forward)
        self._undo.append(undo)
        if any(kind.__name__ == "LightningModule" for kind in type(self._model).__mro__):
            self._passes.listen()
        if self._ddp is not None:  # evaluated without its wrapper, as a rule
            self._undo.append(self._model.register_forward_pre_hook(OnlyHere(self._forward_within)).remove)
        for one in self.found:
            if one.frame is None:
                self._undo.append(hook(self, one, self._updates[id(one.inner)]))
        for frame in self._frames.values():
            parts = [(one, self._updates[id(one.inner)]) for one in self.found if one.frame is frame]
            self._undo.append(Framed(self, frame, parts).remove)
        if self._ddp is not None:
            self._undo.append(self._ddp.remove)
        for source in (Backward, Clipping):
            source.add(self)
            self._undo.append(functools.partial(source.remove, self))
        self._guarded(self._hook_routers)

    def _hook_routers(self):
        self._routers = Routers(self._run, self._model, self._counted, lambda: Backward.running > 0, self._prefix)
        self._undo.append(self._routers.remove)

    def remove(self):
        """Removes every hook."""
        self._light.leave()
        undo, self._undo = self._undo, []
        self._run._models_watched.leave(self._given)
        for one in reversed(undo):
            one()
        if self._accumulation is not None:
            self._accumulation.remove()

    # ---- guarded -------------------------------------------------------------------------------

    def _guarded(self, body, *arguments):
        """Calls `body`, which runs in every step; the governor does not count it. An exception is reported, never raised."""
        try:
            body(*arguments)
        except Exception as error:  # no error of this package may end the trainer's step
            self._failed(getattr(body, "__name__", "?").strip("_"), error)

    def _counted(self, body, *arguments):
        """The same for hooks within the trainer's own calls, counted against the budget."""
        began = thread_time_ns()
        self._guarded(body, *arguments)
        self.budget.spent += thread_time_ns() - began

    def _failed(self, name, error):
        self._run._warn_once(("watch", name), f"watch: {name}: {error!r}")

    def _charged(self, body, *arguments):
        began, spent = thread_time_ns(), self._run._spent
        self._guarded(body, *arguments)
        self._run._spent = spent + thread_time_ns() - began  # calls within are in it

    # ---- steps ---------------------------------------------------------------------------------

    def _has_stepped(self):
        """Returns whether one of its optimizers has stepped in the open step."""
        return not self.ids.isdisjoint(self._loop.stepped)

    def observe_step(self, updated):
        """At a step's end. `updated`: one of its optimizers has stepped."""
        self.stages.enter(NONE)
        self._clipped, self.clips = self.clips, []
        if self.sums.watched:
            self._guarded(self.sums.step_ends, updated)
            if updated and self._parting is not None:
                self._guarded(self._parting.step_ends)
        self._guarded(self._batches.step_ends)
        if updated:
            if self._gradients.together is not None:
                self._guarded(self._gradients.step_ends, self.ids & self._loop.stepped)
            if self._modes.modules:
                self._guarded(self._modes.step_ends)
            if self._averages.seen:
                self._charged(self._averages.step_ends)
            if self._untrained.scans(self._run._step):
                self._guarded(self._untrained.scan, self._run._step)
            if self._untrained.looks:
                self._guarded(self._untrained.step_ends)
            if self._shares.open or self._loop.backwards > 1:
                self._guarded(self._shares.step_ends, self._loop.backwards)
            if self._gradients.screened == self._run._step and self._weights.names:
                self._screen_weights()
            self._observe_weights()
        if self._routers is not None and self._routers.routers:
            self._guarded(self._routers.step_ends)

    def _not_called(self):
        """A step has ended, and the model's own forward was not called in it: its loss is another method, or a function was compiled."""
        if compiles():
            self._is_compiled = True
            self._compiled_away()
        elif self._passes.listening:
            self._forwards = 1  # reported once
            self._modules.not_heard([r.found.name for r in self._routers.routers] if self._routers is not None else [])
        else:
            self._passes.listen()

    def _compiled_away(self):
        self._modules.compiled_away([r.found.name for r in self._routers.routers] if self._routers is not None else [])

    def _forward(self, module, inputs, words):
        began = thread_time_ns()
        try:
            self._before_forward(module, inputs, words)
        except Exception as error:
            self._failed("before_forward", error)
        self.budget.spent += thread_time_ns() - began
        return None

    def _before_forward_of_child(self, module, inputs, words):
        """For a model whose own forward is not called."""
        if not Backward.running:
            self._forward(module, inputs, words)

    def _before_forward(self, module, inputs, words):
        self._forwards = 1
        torch = sys.modules["torch"]
        training = module.training and torch.is_grad_enabled() and not torch.jit.is_tracing()
        if self._routers is not None and self._routers.routers:
            self._routers.forward(training, (*inputs, *words.values()) if words else inputs)
        self._averages.disarm()
        if not training:
            return self.stages.evaluates()
        if not self._requested and self._run._step == NO_STEP and self._completed_since():
            return None
        self._passes.begun, self.thread, self.passed = True, get_ident(), True
        if self._ddp_pending:
            self._ddp_pending = not self._ddp.observe()
        if self._run._step == NO_STEP:
            self._loop.open()
        self.stages.enter(FORWARD)
        self.place = place_of_ids(inputs, words)
        self.tokens += tokens_at(self.place, inputs, words)
        self._guarded(self._batches.begins, words)
        self._shares.labelled(words)
        return None

    def _completed_since(self):
        """At the first forward pass: has DistributedDataParallel been put around the model since the watch, or was an optimizer made where
        there was none? Then another watch takes this one's place."""
        self._requested = True
        ddp = around(self._model) if self._ddp is None else None
        optimizers = [one.wrappers[0] if one.wrappers else one.inner for one in self.found] or holders([p for _, p in self._trained])
        if ddp is None and (self.found or not optimizers):
            self._watch_sums()
            return False
        self.remove()
        self._run.watch(self._given if ddp is None else ddp, optimizers, scaler=self.scaler, activations=self._activations)
        return True

    def _forward_within(self, module, _inputs):
        if not (module.training and sys.modules["torch"].is_grad_enabled()):
            self._guarded(self.stages.evaluates)

    def backward_begins(self, number, loss):
        """Tensor.backward of `loss`, the pass of that number."""
        self._passes.begun = False
        began = thread_time_ns()
        try:
            self._before_backward(number, loss)
        except Exception as error:
            self._failed("before_backward", error)
        self.stages.enter(BACKWARD)
        self.budget.spent += thread_time_ns() - began

    def _before_backward(self, number, loss):
        loop = self._loop
        self._averages.disarm()
        if self._run._step == NO_STEP:
            loop.open()
        if not loop.takes(loss):
            return
        if self._ddp_pending:  # its forward pass is compiled
            self._ddp_pending = not self._ddp.observe()
        if loop.backward(number, loss):
            for watch in loop.watches:
                watch._observe_used_weights()
                watch._guarded(watch._batches.is_nan)
        if loop.losses.waiting:
            self._shares.backward(loop.losses.waiting[-1])
        if self.standstill.suspect(loop.micro):
            self._guarded(self.standstill.request, loop.micro)
            if self not in loop.watches:  # another has taken its place
                return
        if loop.micro == 1 and self._modes.modules:
            self._guarded(self._modes.backward_begins)
        self._look_at_left(loop.micro)

    def backward_ends(self):
        self.stages.enter(NONE)
        if self._loop.sides.open:
            self._guarded(self._loop.sides.backward_ends)
        if self._shares.open:
            self._guarded(self._shares.backward_ends)
        if self._kept is not None and self._kept.wants(self._run._step, self._loop.micro, self._loop.dropped):
            self._counted(self._kept.backward_ends)

    def _look_at_left(self, micro):
        """Watches the accumulation of gradients: if the previous step left some, or if the step has several backward passes."""
        if self._frames:  # they are in buffers of the framework
            return
        cleared = len(self._zeroed) == len(self.optimizers) > 0
        left = micro == 1 and self._run._step > 0 and not cleared and self._leftover.found()
        if self._accumulation is None and (left or micro == 2):
            named = [pair for pair in self._named() if pair[0] not in self._shards]
            self._accumulation = self._run.watch_accumulation(named)
        if left and not self._left:
            look(self._run, "gradients of the previous step were not cleared")
        if micro == 1:
            self._left = left

    def _begin_update(self, optimizer):
        why, self.noted = self.noted, None
        look(self._run, why)
        self._zeroed.discard(id(optimizer))
        self._leftover.before_update()
        self._averages.disarm()
        if self._parting is not None:
            self._guarded(self._parting.before_update)
        self._loop.begin_update(optimizer)

    def _end_update(self, optimizer):
        self.standstill.moved(self._loop.micro)
        self._arms = self._averages.wants()
        self._loop.end_update(optimizer)
        if self._arms:
            self._charged(self._averages.arm)

    # ---- a framework's step ---------------------------------------------------------------------

    def frame_scale(self):
        """Returns the factor by which a framework has scaled the loss, if torch's scalers do not show it."""
        return next((frame.scale() for frame in self._frames.values()), 1.0)

    def framework_steps(self):
        """Returns the steps that each framework has counted."""
        return [frame.owner.global_steps for frame in self._frames.values() if hasattr(frame.owner, "global_steps")]

    def frame_begins(self):
        """Its inner optimizers are about to step, each perhaps several times: what is due is asked once."""
        if self._run._step == NO_STEP:
            self._loop.open()
        step = self._run._step
        chosen = self._looks.chosen(step)
        self.scale, self.framed_due = 1.0, any(self.updates_due(updates, step) for updates in self._updates.values())
        self._gradients.frame_begins(chosen)
        if self._pace.due(step):
            began = thread_time()
            self._ratio.before()
            self._screening = thread_time() - began

    def observe_framed(self, optimizer):
        """Called before a step of an inner optimizer."""
        if self._untrained.looks:
            self._guarded(self._untrained.before_update, optimizer)
        step = self._run._step
        self._gradients.observe(optimizer, self._pace.due(step), 1.0, chosen=self._looks.chosen(step))

    def frame_ends(self, optimizers, made, norm):
        """`made`: False if the framework skipped the step."""
        self._gradients.frame_ends(made, norm)
        if made:
            for one in optimizers:
                self._end_update(one)
        elif self._loop.backwards and not self._loop.stepped:
            self._loop.close()

    # ---- what is recorded ----------------------------------------------------------------------

    def _observe_gradients(self, optimizer, moved=False):
        """`moved`: the weights have moved already."""
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
        if self._gradients.observe(optimizer, paced, self.scale, self.clips, self._looks.chosen(step)) is not None:
            self._observe_used_weights()  # on a device the loss has not been waited for

    def looks(self):
        """Returns whether the gradients, or the updates made of them, are read in this step."""
        step = self._run._step
        chosen = self._looks.chosen(step)
        if chosen is not None:
            return self._pace.due(step) or bool(chosen)
        return self._pace.due(step) or any(self._gradients.due(o) or self._updates[id(o)].due(step) for o in self.optimizers)

    def updates_due(self, updates, step):
        chosen = self._looks.chosen(step)
        return updates.due(step) if chosen is None else bool(chosen) and updates.kind is not None

    def clip(self, parameters, total, most):
        """clip_grad_norm_ is about to clip, or has clipped, these parameters' gradients."""
        self.clips.append(Clip(parameters, total, most))
        self._light.clipped = True

    def loss_factor(self, micro):
        """Returns the factor between the losses of the step and those whose gradients the optimizer got."""
        try:
            return 1.0 if self._kept is None or not self._kept.open else self._kept.factor(micro, self._clipped, self._loop.applied_scale())
        except Exception as error:
            self._failed("loss_factor", error)
            return 1.0

    def gets_others(self):
        """Returns whether the optimizer got other gradients in the step that ends than the last of several backward passes left."""
        return self._kept is not None and self._kept.others

    def _screen_weights(self):
        began = thread_time()
        sums = self._weights.checksums()
        self._moved, why = self.screen_moved(sums)
        self._weights.record_checksum(sums, self._gradients.poisoned)
        look(self._run, why)
        self._run._spent += self._pace.cost(self._screening + self._gradients.seconds + thread_time() - began)

    def scan_light(self, step):
        """After the update of a light step. Returns True if the next steps must be whole ones."""
        if self._untrained.scans(step):
            self._untrained.scan(step)
        return not self._untrained.settled

    def made_light(self, step):
        """The steps that the optimizer's state has made, to be recorded in a light step; or None."""
        return self._loop.restarts.made(self.optimizers[0], step)

    def screen_moved(self, sums):
        """(the update ratio or None, why a look is due)."""
        moving = self._gradients.moving if all(g["lr"] for o in self.optimizers for g in o.param_groups) else ()
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
        """Records losses, rates and counts. `losses`: pairs (series, values) of the loop; if there are several watches, given to the first one."""
        run, tokens = self._run, self.tokens
        self.tokens = 0
        if not self._forwards and not self._is_compiled:
            self._guarded(self._not_called)
        if run._step == NO_STEP:
            return
        for name, each in losses:
            loss = sum(map(float, each))
            if not isinstance(each[0], float):
                look(run, self.screen.loss(loss, name))  # for the next steps: this one is nearly over
            run._own_scalar(name, loss)
            if name == "loss":
                self._loop.restarts.loss(loss)
        if tokens:
            run._own_scalar("tokens", tokens)
        scaler = self._loop.scaler() if self._loop.watches[:1] == [self] else None
        if scaler is not None and scaler.is_enabled():
            run._own_scalar("loss_scale", scaler.get_scale())
        # The factor of LBFGS is of a direction that its gradients' curvature scales: a step of it may be below a weight's last place.
        rates = [group["lr"] for o in self.optimizers if type(o).__name__ != "LBFGS" for group in o.param_groups][:_MOST_RATES]
        for number, rate in enumerate(rates):
            run._own_scalar(numbered("lr", self._number + number), float(rate))
        moved, self._moved = self._moved, None
        if moved is not None:
            run._own_scalar(numbered("update_ratio", self._number), moved)

    # ---- what it costs -------------------------------------------------------------------------

    def step_over(self, of, first):
        """A step of `of` watches has ended; the first watch keeps the account of its cost."""
        budget = self.budget
        if self.ends_began is not None:
            budget.spent += thread_time_ns() - self.ends_began
            self.ends_began = None
        if not budget.governed:
            budget.spent = 0
            return
        if first:
            self._run._spent_last = budget.spent / of
            light, self._light_steps = self._light_steps, 0
            budget.account(light, any(watch._looks.seen for watch in self._loop.watches))
        self._looks.light = self._light.worth()
        self._looks.step_ended(self._run._spent_last)
        if budget.period is not None:
            self._pace.step_ended(budget.period / 1e9, 0.0, self._run._next_step)
            apart = budget.base if self._looks.light else 0  # a whole step is made for it
            if self._routers is not None:
                self._routers.pace.follow(budget.period / 1e9, apart / 1e9, self._run._next_step)
        if first and of == 1:
            if self._run._step == NO_STEP:
                self._guarded(self._light.step_ended)
            else:  # it is the trainer's own
                self._run._after_step = self._light.step_ended

    # ---- steps that are recorded by stores alone (_watching/light.py) -------------------------------

    def light_begins(self):
        if self._routers is not None:
            self._routers.training = False

    def light_ended(self, steps, zeroed, level):
        """`steps` light steps were recorded."""
        (self._zeroed.add if zeroed else self._zeroed.discard)(id(self.optimizers[0]))
        self.screen.set_level(level)
        self._light_steps += steps
        self._untrained.skipped(self.optimizers[0], steps)

    def clipped_norm(self):
        """Returns the norm before the clip of the light step that ends, or None."""
        clips, self.clips = self.clips, []
        return self._gradients.clipped(self.optimizers[0], clips)
