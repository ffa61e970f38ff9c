"""run.watch(model, optimizer): the second of the two lines."""

import math
import sys
from time import perf_counter, thread_time_ns

from ._compiled import is_compiled, unwrapped
from ._ddp import Hook, is_ddp
from ._kinds import KIND_TENSOR
from ._library import CAPTURING, NO_STEP
from ._optimizer_hooks import hook
from ._pace import Pace
from ._process_groups import describe_group
from ._routers import OnlyHere, Routers
from ._screen import Checksums, combined, look, norms
from ._shards import gradients, shard_names
from ._tensors import Unsupported, local
from ._watching.gradients import Gradients
from ._watching.losses import Losses, numbered
from ._watching.modules import Backward, Modules, Stages
from ._watching.ratio import Ratio
from ._watching.updates import Updates
from ._watching.words import describe

_MOST_RATES = 4  # learning rates of so many parameter groups
_SHARE = 0.0025  # of a step's time, for its screening
_MOST_FEW, _ENOUGH = 8, 1024  # parameters, elements of them
_FARTHEST = 2.0**53  # step
_MANY = 4096  # backward passes of one step


def _few(parameters):
    """The smallest ones, in which a gradient that was left shows as well as in all: cheap to look at in every step."""
    few, elements = [], 0
    for parameter in sorted(parameters, key=lambda p: p.numel()):
        if few and (len(few) == _MOST_FEW or elements >= _ENOUGH):
            break
        few.append(parameter)
        elements += parameter.numel()
    return few


def _steps_made(optimizer):
    """As its state says; 0 where it does not count them."""
    for state in optimizer.state.values():
        made = state.get("step") if isinstance(state, dict) else None
        if made is not None:
            made = float(made)
            return int(made) if 0 < made < _FARTHEST else 0
    return 0


class Watch:
    """What watches one model and its optimizers until remove()."""

    def __init__(self, run, model, optimizers, scaler, activations=None):
        self._run, self._scaler, self._given = run, scaler, model
        self._is_compiled, self._forwards, model = is_compiled(model), 0, unwrapped(model)
        self._optimizers = optimizers
        self._model = model.module if is_ddp(model) else model
        self._ddp = None
        self._replicas = "world" if is_ddp(model) else None
        self._ddp_pending = is_ddp(model)
        named = [name for name, _ in self._model.named_parameters()]
        self._number, self._prefix = run._models_watched.enter(self._given, optimizers, named)
        if is_ddp(model):
            self._ddp = Hook(run, model, f"{self._prefix}gradients")
        self._updates = {id(o): Updates(run, o, {id(p): name for name, p in self._named()}) for o in optimizers}
        self._trained = [(name, p) for name, p in self._named() if p.requires_grad]
        self._zeroed = set()  # optimizers that have cleared their gradients since they stepped
        self._cleared_last = None
        self._shards = {self._prefix + name for name in shard_names(self._model)}
        self._smallest = _few([p for _, p in self._trained])
        self._stepped = set()  # optimizers, since the step began
        self._gradients = Gradients(run, optimizers, self._trained, self._shards, self._number)
        self._screen = self._gradients.screen
        self._ratio, self._moved = Ratio(self._trained), None
        self._pace = Pace(lambda: _SHARE)
        self._ignored = getattr(model, "parameters_to_ignore", ()) if self._replicas else ()  # by DDP
        self._copies = [(self._prefix + name, p) for name, p in self._model.named_parameters() if name not in self._ignored]
        self._names = [name for name, _ in self._copies]
        self._checksums = Checksums(run._library.short, [p for _, p in self._copies])
        self._checksum_name = f"weights_checksum{self._prefix and '.' + self._prefix[:-1]}"
        if self._replicas:
            group = describe_group(getattr(model, "process_group", None)).name
            if group:  # other groups hold other weights
                self._replicas, self._checksum_name = f"group {group}", f"{self._checksum_name}.{group}"
        self._used_step = NO_STEP  # in which the weights were looked at in front of their update
        self._losses = Losses(optimizers, self._number, run._models_watched.alone)
        self._tokens, self._backwards, self._micro = 0, 0, 0
        self._accumulation = None
        self._own_step = self.in_closure = self._repeated = False
        self.scale = 1.0  # by which the gradients of the step that is made are too large
        self._undo, self._routers = [], None
        if len(optimizers) > 1:
            run._at_step_end.append(self._partly)
            self._undo.append(lambda: run._at_step_end.remove(self._partly))
        self.stages = Stages(run)
        self._modules = Modules(run, self._model, activations, self._guarded, self._prefix)
        self._undo.append(self._modules.remove)
        self._hook(model)
        if self._is_compiled:
            self._compiled_away()

    def _named(self):
        return ((self._prefix + name, p) for name, p in self._model.named_parameters())

    def shares(self):
        """Another model of the run is watched too: whose loss it was, was not the question until now."""
        self._losses.apart = True

    # ---- what is hooked ------------------------------------------------------------------------

    def _hook(self, model):
        self._undo.append(self._given.register_forward_pre_hook(OnlyHere(self._forward)).remove)
        if self._ddp is not None:  # evaluated without its wrapper, as a rule
            self._undo.append(self._model.register_forward_pre_hook(OnlyHere(self._forward_within)).remove)
        for optimizer in self._optimizers:
            self._undo.append(hook(self, optimizer, self._updates[id(optimizer)]))
        if self._ddp is not None:
            self._undo.append(self._ddp.remove)
        self.stages.hook()
        self._undo.append(self.stages.remove)
        Backward.add(self)
        self._undo.append(lambda: Backward.remove(self))
        self._guarded(self._hook_routers)

    def _hook_routers(self):
        self._routers = Routers(self._run, self._model, self._guarded, lambda: Backward.running > 0, self._prefix)
        self._undo.append(self._routers.remove)

    def remove(self):
        """Takes every hook away again."""
        undo, self._undo = self._undo, []
        self._run._models_watched.leave(self._given)
        for one in reversed(undo):
            one()
        if self._accumulation is not None:
            self._accumulation.remove()

    # ---- guarded -------------------------------------------------------------------------------

    def _guarded(self, body, *arguments):
        """What is done in every step anyhow: the governor, which thins out looks, does not count it."""
        try:
            body(*arguments)
        except Exception as error:  # nothing of ours may end the trainer's step
            name = getattr(body, "__name__", "?").strip("_")
            self._run._tell_softly(("watch", name), f"watch: {name}: {error!r}")

    def _charged(self, body, *arguments):
        began, spent = thread_time_ns(), self._run._spent
        self._guarded(body, *arguments)
        self._run._spent = spent + thread_time_ns() - began  # calls within are in it

    # ---- steps ---------------------------------------------------------------------------------

    def _open(self):
        """A step of ours, where the trainer has none of its own."""
        run = self._run
        if run._step != NO_STEP or run._explicit_steps:
            return
        if run._next_step == 0:
            self._go_on()
        run._begin_step(run._next_step)
        self._own_step = run._step != NO_STEP

    def _go_on(self):
        """Behind a resume the steps go on where the loaded optimizer stands, if it counts its own."""
        made = [_steps_made(optimizer) for optimizer in self._optimizers]
        if made and max(made) > 0:
            self._run._next_step = max(made)
            print(f"plumbline: steps go on at {max(made)}: the optimizer's state has made so many", file=sys.stderr)

    def _partly(self):
        """The trainer ends its step itself, and not all of its optimizers have stepped in it."""
        if self._stepped and not self._own_step:
            self._guarded(self._close)

    def _close(self, carry=False):
        """`carry`: what has been computed since the last update is of the next step."""
        self.stages.end("forward")
        if self._stepped:
            self._screen_weights()
            self._observe_weights()
            self._modules.observe_buffers()
            self._stepped.clear()
        if self._routers is not None:
            self._guarded(self._routers.step_ends)
        self._tell_scalars(carry)
        if not self._forwards and not self._is_compiled and "torch._dynamo" in sys.modules:
            self._is_compiled = True
            self._guarded(self._compiled_away)
        if self._own_step:
            self._own_step = False
            self._run._end_step()

    def _forward(self, module, inputs):
        self._guarded(self._before_forward, module, inputs)

    def _compiled_away(self):
        self._modules.compiled_away([r.found.name for r in self._routers.routers] if self._routers is not None else [])

    def _before_forward(self, module, inputs):
        self._forwards = 1
        torch = sys.modules["torch"]
        training = module.training and torch.is_grad_enabled() and not torch.jit.is_tracing()
        if self._routers is not None:
            self._routers.forward(training, inputs)
        if not training:
            return self.stages.evaluates()
        if self._ddp_pending:
            self._ddp_pending = not self._ddp.observe()
        if self._run._step == NO_STEP:
            self._open()
        self.stages.begin("forward")
        for value in inputs:
            if torch.is_tensor(value) and not value.is_floating_point() and value.dim() > 1:
                self._tokens += value.numel()
                break

    def _forward_within(self, module, _inputs):
        if not (module.training and sys.modules["torch"].is_grad_enabled()):
            self._guarded(self.stages.evaluates)

    def _before_backward(self, loss):
        self.stages.end("forward")
        if self._run._step == NO_STEP:
            self._open()
        if self._run._step >= CAPTURING or loss.numel() != 1:
            return
        if self._ddp_pending:  # its forward pass is compiled
            self._ddp_pending = not self._ddp.observe()
        self._backwards += 1
        self._micro += 1  # since somebody's update
        here = loss.device.type == "cpu"  # elsewhere reading it would wait for the device
        scale = None if self._scaler is None else getattr(self._scaler, "_scale", None)
        if not here:
            loss = loss.detach() if scale is None else loss.detach() / scale
        else:
            loss = value = loss.item() if scale is None else (loss.detach() / scale).item()
            why = self._screen.loss(value, (self._cleared_last, *self._stepped) if len(self._optimizers) > 1 else None)
            if why is not None:
                look(self._run, why)
                if not math.isfinite(value):
                    self._observe_used_weights()
        if self._backwards == _MANY:
            self._run._tell_softly("watch-no-step", f"watch: {_MANY} backward passes and no step of a watched optimizer; "
                                   "was it replaced? expected run.watch(model, optimizer) with the new one, behind remove()")  # fmt: skip
        if self._accumulation is None:
            left_over = self._left_over()
            if left_over or self._micro == 2:
                named = [pair for pair in self._named() if pair[0] not in self._shards]
                self._accumulation = self._run.watch_accumulation(named)
            if left_over:
                look(self._run, "gradients of the step before were not cleared")
        if not self._repeated:  # what the step began with is its loss
            self._losses.waiting.append(loss)

    def _left_over(self):
        """Does the first micro-batch find a gradient that is not zero? On a device nobody waits for the answer."""
        if self._micro > 1 or self._run._step == 0 or len(self._zeroed) == len(self._optimizers) > 0:
            return False
        some = [g for _, g in gradients([("", p) for p in self._smallest], ("",))]
        held = [g for g in some or [g for _, g in gradients(self._trained, self._shards)][:1] if g.device.type == "cpu"]
        return bool(held) and any(norm != 0 for norm in norms(self._run._library.short, held))

    def _cleared(self, optimizer):
        """zero_grad after a backward pass and no step: a loss scaler skipped it, or a closure runs again."""
        self._cleared_last = id(optimizer)
        if self.in_closure:
            self._repeated, self._backwards, self._micro = bool(self._losses.waiting), 0, 0
        elif self._backwards and not self._stepped:
            self._close()

    def _begin_update(self, optimizer):
        self._zeroed.discard(id(optimizer))
        if id(optimizer) in self._stepped:  # of several, one steps more often than others
            self._close(carry=True)
        if self._run._step == NO_STEP:
            self._open()

    def _end_update(self, optimizer):
        self._losses.used(optimizer, bool(self._stepped))
        self._stepped.add(id(optimizer))
        self._micro = 0
        if len(self._stepped) == len(self._optimizers):
            self._close()

    # ---- what is told --------------------------------------------------------------------------

    def _observe_gradients(self, optimizer):
        step = self._run._step
        if step == NO_STEP:
            return
        paced = self._pace.due(step)
        if paced and not self._stepped:
            began = perf_counter()
            self._ratio.before()
            self._screening = perf_counter() - began
        if self._gradients.observe(optimizer, paced, self.scale) is not None:
            self._observe_used_weights()  # on a device nobody has waited for the loss

    def looks(self):
        """Whether this step is one in which the gradients, or what they become, are read."""
        step = self._run._step
        return self._pace.due(step) or any(self._gradients.due(o) or self._updates[id(o)].due(step) for o in self._optimizers)

    def _screen_weights(self):
        """What the ranks hold copies of is told as one number; a parameter that stands still is looked at."""
        if self._gradients.screened != self._run._step or not self._copies:
            return
        began = perf_counter()
        sums = self._checksums()
        self._moved = self._ratio.after()
        if self._replicas and not self._gradients.poisoned:
            self._run._own_scalar(self._checksum_name, combined(sums))
        moving = self._gradients.moving if all(g["lr"] for o in self._optimizers for g in o.param_groups) else ()
        look(self._run, self._screen.weights(self._names, sums, moving))
        self._run._spent += self._pace.cost(self._screening + self._gradients.seconds + perf_counter() - began)

    def _observe_used_weights(self):
        """In front of their update, as the forward pass used them: was it a weight that brought it in?

        A role of its own, since a weight is looked at behind its update otherwise.
        """
        run = self._run
        if self._stepped or self._used_step == run._step or run._step >= CAPTURING:
            return
        self._used_step = run._step
        named = [(name, p) for name, p in self._named() if p.is_floating_point() and local(p).numel()]
        for name, _ in named:
            run._site(KIND_TENSOR, name, "parameter")
        look(run, "those sites too")
        with run.together():
            for name, parameter in named:
                run._observe_state(name, parameter, "parameter")
            for updates in self._updates.values():  # behind the weights: what is in both was in the weights
                updates.observe_moments()

    def _observe_weights(self):
        if not self._ignored and not self._shards and not self._prefix:
            self._run.observe_parameters(self._model, replicas=self._replicas)
            return
        with self._run.together():
            for name, parameter in self._copies:
                if name in self._shards and not local(parameter).numel():
                    continue
                self._run.observe_tensor(name, parameter, role="weight", replicas=self._replicas)

    def _tell_scalars(self, carry):
        run, losses, tokens = self._run, self._losses.take(carry), self._tokens
        self._tokens, self._repeated = 0, False
        self._backwards, self._micro = (self._micro, self._micro) if carry else (0, 0)
        self._pace.step_began()
        if run._step == NO_STEP:
            return
        for name, each in losses:
            loss = sum(map(float, each))
            if not isinstance(each[0], float):
                look(run, self._screen.loss(loss, name))  # for the next steps: this one is nearly over
            run._own_scalar(name, loss)
        if tokens:
            run._own_scalar("tokens", tokens)
        if self._scaler is not None and self._scaler.is_enabled():
            run._own_scalar("loss_scale", self._scaler.get_scale())
        rates = [group["lr"] for o in self._optimizers for group in o.param_groups][:_MOST_RATES]
        for number, rate in enumerate(rates):
            run._own_scalar(numbered("lr", self._number + number), float(rate))
        moved, self._moved = self._moved, None
        if moved is not None:
            run._own_scalar(numbered("update_ratio", self._number), moved)


def watch(run, model, optimizer, scaler, activations=None):
    """A Watch, or Unsupported."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise Unsupported(f"expected a torch.nn.Module, not {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise Unsupported("hooks do not run inside of a ScriptModule: expected the model before torch.jit")
    models = run._models_watched
    if models.watch_of(model) is not None:
        raise Unsupported("this model is watched already; expected one call, with all of its optimizers in a list")
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    for one in optimizers:
        if not isinstance(one, torch.optim.Optimizer):
            raise Unsupported(f"expected an optimizer of torch.optim, or a list of them, not {type(one).__name__}")
    run._ranks.follow(run)
    try:
        watched = Watch(run, model, optimizers, scaler, activations)
    except Exception:
        models.leave(model)
        raise
    models.entered(model, watched)
    print(f"plumbline: {describe(watched)}", file=sys.stderr)
    return watched
