"""run.watch(model, optimizer): the second of the two lines that a trainer needs."""

import functools
import sys
from threading import get_ident
from time import thread_time_ns

from ._compiled import compiles
from ._data.digests import Digests
from ._gradients.leftover import Leftover
from ._library import NO_STEP
from ._optimizer_hooks import hook
from ._pace import Pace, PacedSums
from ._routers import OnlyHere, Routers, hook_forward
from ._screen import look
from ._shards import named_parameters, shard_names
from ._watching.averages import Averages
from ._watching.batches import Batches
from ._watching.budget import BUFFERS, Looks
from ._watching.clipping import Clipping
from ._watching.collectives import Sums
from ._watching.copies import Parting, copies_of, gradient_groups
from ._watching.ddp import Hook, around
from ._watching.frames import Framed, FrameworkSteps
from ._watching.gradients import Gradients
from ._watching.kept import Kept
from ._watching.light import Light
from ._watching.light_when import is_plain
from ._watching.modes import Modes
from ._watching.modules import Backward, Modules
from ._watching.passes import Passes, place_of_ids, tokens_at
from ._watching.ratio import Ratio
from ._watching.records import Records
from ._watching.shares import Shares
from ._watching.stages import BACKWARD, FORWARD, NONE
from ._watching.standstill import Standstill
from ._watching.untrained import Untrained
from ._watching.unwrap import holders
from ._watching.updates import Updates
from ._watching.weights import Weights
from ._watching.words import alone, processes, unseen_sums

_SHARE = 0.0025  # the share of a step's time that its screening may cost


class Watch(Records, FrameworkSteps):
    """Watches one model and its optimizers until remove()."""

    def __init__(self, run, model, found, scaler, activations=None):
        """model: an unwrap.Model. found: [unwrap.Opened]."""
        self._run, self.scaler, self._given = run, scaler, model.given
        self.budget, self.light, self.ends_began, self._light_steps = run._budget, None, None, 0
        self._arms = False  # averages are observed until the next step
        self._is_compiled, self._forwards, self._model, ddp = model.compiled, 0, model.module, model.ddp
        self._requested, self._activations = False, activations
        self.found, self._loop = found, run._models_watched.loop(run)
        self.optimizers = optimizers = [one.inner for one in found]
        self.ids = frozenset(map(id, optimizers))
        self._ddp, self._ddp_pending, self.world = None, ddp is not None, processes()
        named = [name for name, _ in named_parameters(self._model)]
        self._number, self._prefix = run._models_watched.enter(self._given, optimizers, named)
        names = {id(p): name for name, p in self._named()}
        self._updates = {id(one.inner): Updates(run, one.inner, names, one.pieces) for one in found}
        self._trained = [(name, p) for name, p in self._named() if p.requires_grad]
        self._zeroed = set()  # optimizers that have cleared their gradients since they stepped
        self._shards = {self._prefix + name for name in shard_names(self._model)}
        self._leftover = Leftover(run, self._trained, self._shards)
        parts = {names.get(id(piece.parameter)) for one in found for piece in one.pieces if not piece.whole}
        apart = self._shards | parts
        self._gradients = Gradients(run, found, self._trained, apart, self._number, self._named)
        self._frames = {id(one.frame): one.frame for one in found if one.frame is not None}
        self.framed_due = False  # inside of a framework's step: whether updates are due
        self.screen = self._gradients.screen
        self._ratio, self._moved = Ratio(run._library.short, self._trained), None
        self._pace, self.paced_sums = Pace(_SHARE, run._budget.every), PacedSums(run, _SHARE)
        copies = copies_of(ddp, self._frames.values(), self._model)
        self._weights = Weights(run, self._model, self._prefix, copies, ddp, self._shards)
        floating = any(b.is_floating_point() for b in self._model.buffers())
        names = self._weights.names
        everything = [*([BUFFERS] if floating else ()), *names, *(name for name, _ in self._trained if name not in set(names))]
        self._looks = Looks(run, everything, self._weights.replicas is not None or processes() > 1)
        if ddp is not None:
            self._ddp = Hook(run, ddp, f"{self._prefix}gradients", self.paced_sums)
        self.standstill = Standstill(run, self._given, optimizers, scaler, activations, self._trained)
        self._summed = False  # whether sums were measured in the last step
        self.tokens, self.place = 0, None  # tokens of the step; the argument of a forward pass with its token ids
        self._accumulation, self._left = None, False
        self.in_closure, self.within = False, None  # within: the hook of the module inside of DistributedDataParallel
        self.clips, self._clipped = [], []  # the clips of the open step; the clips of the step that ends
        self.scale = 1.0  # factor by which the gradients of the current step are too large
        self._passes = Passes(self._model, self._before_forward_of_child)
        self._untrained = Untrained(run, self._model, self._prefix, self._trained, found, self._is_compiled,
                                    self._gradients.divide_again)  # fmt: skip
        self._modes = Modes(run, self._model, self._prefix, [name for name, _ in self._trained])
        self._averages = Averages(run, self._model, self._prefix)
        self._kept = Kept(self._trained) if len(found) == 1 and not self._frames else None
        self.thread = None  # the thread of its forward passes
        self.passed = False  # whether its model was called since the step began
        self.idle = 0  # consecutive steps of other watches in which its model was neither called nor updated
        self.kind = (type(self._model), tuple(named))
        self._shares = Shares(run, self._model, self._trained, self._is_compiled)
        self._batches, self._digests = Batches(run, self._model), Digests(run)
        parts = (self._untrained, self._averages, self._passes, self._shares)
        self._undo, self._routers = [part.remove for part in parts], None
        self._loop.join(self, optimizers, self._number)
        self._undo.append(lambda: self._loop.leave(self))
        self.stages = self._loop.stages
        self.sums = Sums(run, self._loop, self._prefix, self.paced_sums, gradient_groups(self._given))
        self._undo.append(self.sums.remove)
        self._parting = None
        self._modules = Modules(run, self._model, activations, self._guarded, self._prefix)
        self._undo.append(self._modules.remove)
        self._light, self.noted = Light(self, run, self._loop), None  # why a measurement is due in the next step
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

    # ---- hooks ---------------------------------------------------------------------------------

    def _hook(self):
        self.hooked = self._given
        self.hook, undo = hook_forward(self.hooked, self._forward)
        self._undo.append(undo)
        if any(kind.__name__ == "LightningModule" for kind in type(self._model).__mro__):
            self._passes.listen(expected=True)
        if self._ddp is not None:  # evaluations usually call the model without its wrapper
            self.within = OnlyHere(self._forward_within)
            self._undo.append(self._model.register_forward_pre_hook(self.within).remove)
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
        self._routers = Routers(self._run, self._model, self._counted, Backward.runs, self._prefix)
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
        """Calls `body`, without a charge to the budget. Reports an exception, never raises it."""
        try:
            body(*arguments)
        except Exception as error:  # no error of this package may end the trainer's step
            self._failed(getattr(body, "__name__", "?").strip("_"), error)

    def _counted(self, body, *arguments):
        """Does the same as _guarded for hooks inside of the trainer's own calls, and charges the budget."""
        began = thread_time_ns()
        self._guarded(body, *arguments)
        self.budget.spent += thread_time_ns() - began

    def _failed(self, name, error):
        self._run._warn_once(("watch", name), f"watch: {name}: {error!r}")

    def _charged(self, body, *arguments):
        began, spent = thread_time_ns(), self._run._spent
        self._guarded(body, *arguments)
        self._run._spent = spent + thread_time_ns() - began  # includes nested calls

    # ---- steps ---------------------------------------------------------------------------------

    def _has_stepped(self):
        """Returns whether one of its optimizers has stepped in the open step."""
        return not self.ids.isdisjoint(self._loop.stepped)

    def observe_step(self, updated):
        """Called at a step's end. `updated`: one of its optimizers has stepped."""
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
        """Called after a step in which another method than forward, or a compiled function, made the loss."""
        if compiles():
            self._is_compiled = True
            self._compiled_away()
        elif self._passes.listening:
            self._forwards = 1  # so this is reported once
            self._modules.not_heard(self._router_names())
        else:
            self._passes.listen()

    def _compiled_away(self):
        self._modules.compiled_away(self._router_names())

    def _router_names(self):
        return [] if self._routers is None else [router.found.name for router in self._routers.routers]

    def _forward(self, module, inputs, words):
        began = thread_time_ns()
        try:
            self._before_forward(module, inputs, words)
        except Exception as error:
            self._failed("before_forward", error)
        self.budget.spent += thread_time_ns() - began
        return None

    def _before_forward_of_child(self, module, inputs, words):
        """Called for a model whose own forward is not called."""
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
        self._guarded(self._batches.begins, inputs, words)
        if self.place is not None:
            self._digests.takes((inputs if isinstance(self.place, int) else words)[self.place], self._run._step)
        self._shares.labelled(words)
        return None

    def _completed_since(self):
        """If the model got its DistributedDataParallel or its first optimizer after the watch, replaces
        this watch by another one and returns True. Called at the first forward pass."""
        self._requested = True
        ddp = around(self._model) if self._ddp is None else None
        optimizers = [one.wrappers[0] if one.wrappers else one.inner for one in self.found]
        optimizers = optimizers or holders([p for _, p in self._trained])
        if ddp is None and (self.found or not optimizers):
            self._watch_sums()
            return False
        self.remove()
        model = self._given if ddp is None else ddp
        self._run.watch(model, optimizers, scaler=self.scaler, activations=self._activations)
        return True

    def _forward_within(self, module, _inputs):
        if not (module.training and sys.modules["torch"].is_grad_enabled()):
            self._guarded(self.stages.evaluates)

    def backward_begins(self, number, loss):
        """Called before Tensor.backward of `loss`, the pass of that number."""
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
        if loop.losses.waiting:
            self._shares.backward(loop.losses.waiting[-1])
        if self.standstill.suspect(loop.micro):
            self._guarded(self.standstill.request, loop.micro)
            if self not in loop.watches:  # another watch has replaced this one
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
        """Watches gradients add up if the previous step left some, or after several backward passes."""
        if self._frames:  # the gradients are in buffers of the framework
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

    # ---- cost ----------------------------------------------------------------------------------

    def step_over(self, of, first):
        """Called when a step of `of` watches has ended; the first watch keeps the account of its cost."""
        budget = self.budget
        if self.ends_began is not None:
            budget.spent += thread_time_ns() - self.ends_began
            self.ends_began = None
        if not budget.governed:
            budget.spent = 0
            return
        if first:
            self._run._spent_last = budget.spent / of
            light, self._light_steps, summed = self._light_steps, 0, self.paced_sums.taken()
            budget.spent, self._summed = budget.spent + summed, summed > 0
            budget.account(light, self._summed or any(watch._looks.seen for watch in self._loop.watches))
        self._looks.light = self._light.worth()
        self._looks.step_ended(self._run._spent_last)
        if budget.period is not None:
            self._set_paces(budget.period / 1e9, self._run._next_step)
            if self._run._next_step > self._run._planned:
                self._run._plan(self._looks.next(self._run._next_step))
        if first and of == 1:
            if self._run._step == NO_STEP:
                self._guarded(self._light.step_ended)
            else:  # the trainer records this step itself
                self._run._after_step = self._light.step_ended
