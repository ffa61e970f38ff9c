"""run.watch(model, optimizer): the second of the two lines."""

import math
import sys
import types
import weakref
from time import perf_counter, thread_time_ns

from ._ddp import Hook, is_ddp
from ._library import CAPTURING, NO_STEP
from ._tensors import Unsupported
from ._watch_updates import Updates

_MOST_RATES = 4  # learning rates of so many parameter groups
_SHARE = 0.003  # of a step's time, for the gradient's norm
_LONGEST = 64  # steps between two norms at most


class _Backward:
    """Tensor.backward, which tells the watches whose trainer calls it on a scalar."""

    watches = weakref.WeakSet()
    original = None

    @classmethod
    def add(cls, watch):
        cls.watches.add(watch)
        tensor = sys.modules["torch"].Tensor
        if cls.original is None:
            original = cls.original = tensor.backward

            def backward(self, *arguments, **options):
                for one in list(cls.watches):
                    one._guarded(one._before_backward, self)
                return original(self, *arguments, **options)

            backward.__doc__ = original.__doc__
            tensor.backward = backward

    @classmethod
    def remove(cls, watch):
        cls.watches.discard(watch)
        if not cls.watches and cls.original is not None:
            sys.modules["torch"].Tensor.backward = cls.original
            cls.original = None


class _Pace:
    """Every how many steps something of a known cost is done, so that it stays a share of the time."""

    def __init__(self):
        self.every, self._cost, self._began = 1, 0.0, None

    def due(self, step):
        return step % self.every == 0

    def step_began(self):
        now = perf_counter()
        if self._began is not None and self._cost:
            while self.every < _LONGEST and self._cost > self.every * _SHARE * (now - self._began):
                self.every *= 2
        self._began = now

    def cost(self, seconds):
        self._cost = seconds if not self._cost else min(self._cost, seconds)


def _norm(gradients):
    """Of all together, in fp32 at least; one number that waits for the device."""
    torch = sys.modules["torch"]
    total = 0.0
    for one in torch.stack([torch.linalg.vector_norm(g.detach(), dtype=torch.float32).cpu() for g in gradients]).tolist():
        total = math.hypot(total, one)
    return total


class Watch:
    """What watches one model and its optimizers until remove()."""

    def __init__(self, run, model, optimizers, scaler):
        self._run, self._scaler = run, scaler
        self._optimizers = optimizers
        self._model = model.module if is_ddp(model) else model
        self._ddp = Hook(run, model) if is_ddp(model) else None
        self._replicas = "world" if self._ddp is not None else None
        self._ddp_pending = self._ddp is not None
        names = {id(p): name for name, p in self._model.named_parameters()}
        self._updates = {id(o): Updates(run, o, names) for o in optimizers}
        self._trained = [(name, p) for name, p in self._model.named_parameters() if p.requires_grad]
        self._stepped = set()  # optimizers, since the step began
        self._pace = _Pace()
        self._losses, self._tokens, self._backwards = [], 0, 0
        self._accumulation = None
        self._own_step = False
        self._undo = []
        self._hook(model)

    # ---- what is hooked ------------------------------------------------------------------------

    def _hook(self, model):
        self._undo.append(model.register_forward_pre_hook(self._forward).remove)
        for optimizer in self._optimizers:
            self._hook_optimizer(optimizer)
        if self._ddp is not None:
            self._undo.append(self._ddp.remove)
        _Backward.add(self)
        self._undo.append(lambda: _Backward.remove(self))

    def _hook_optimizer(self, optimizer):
        """By the method, as a scheduler does it too: torch has hooks for it from 2.0 on only."""
        watch, plain_step, plain_clear = self, optimizer.step, optimizer.zero_grad
        updates = self._updates[id(optimizer)]

        def step(self, *arguments, **options):
            watch._guarded(watch._begin_update, self)
            watch._guarded(watch._observe_gradients)
            watch._guarded(updates.before)
            result = plain_step(*arguments, **options)
            watch._guarded(updates.after)
            watch._guarded(watch._end_update, self)
            return result

        def zero_grad(self, *arguments, **options):
            watch._guarded(watch._cleared)
            return plain_clear(*arguments, **options)

        # torch's schedulers ask whether they have wrapped it already.
        step.__dict__.update(getattr(plain_step, "__dict__", {}))
        ours = {"step": types.MethodType(step, optimizer), "zero_grad": types.MethodType(zero_grad, optimizer)}
        for name, method in ours.items():
            setattr(optimizer, name, method)
        plain = {"step": plain_step, "zero_grad": plain_clear}

        def undo():
            for name, method in ours.items():
                if optimizer.__dict__.get(name) is method:
                    setattr(optimizer, name, plain[name])

        self._undo.append(undo)

    def remove(self):
        """Takes every hook away again."""
        undo, self._undo = self._undo, []
        for one in reversed(undo):
            one()
        if self._accumulation is not None:
            self._accumulation.remove()

    # ---- guarded -------------------------------------------------------------------------------

    def _guarded(self, body, *arguments):
        began, spent = thread_time_ns(), self._run._spent
        try:
            body(*arguments)
        except Exception as error:  # nothing of ours may end the trainer's step
            name = getattr(body, "__name__", "?").strip("_")
            self._run._tell_softly(("watch", name), f"watch: {name}: {error!r}")
        finally:
            self._run._spent = spent + thread_time_ns() - began  # calls within are in it

    # ---- steps ---------------------------------------------------------------------------------

    def _open(self):
        """A step of ours, where the trainer has none of its own."""
        run = self._run
        if run._step != NO_STEP or run._explicit_steps:
            return
        run._begin_step(run._next_step)
        self._own_step = run._step != NO_STEP

    def _close(self):
        self._stepped.clear()
        self._tell_scalars()
        if self._own_step:
            self._own_step = False
            self._run._end_step()

    def _forward(self, module, inputs):
        self._guarded(self._before_forward, module, inputs)

    def _before_forward(self, module, inputs):
        torch = sys.modules["torch"]
        if not module.training or not torch.is_grad_enabled() or torch.jit.is_tracing():
            return
        if self._ddp_pending:
            self._ddp_pending = not self._ddp.observe()
        self._open()
        for value in inputs:
            if torch.is_tensor(value) and not value.is_floating_point() and value.dim() > 1:
                self._tokens += value.numel()
                break

    def _before_backward(self, loss):
        if loss.numel() != 1 or self._run._step >= CAPTURING:
            self._open()
            return
        self._open()
        self._backwards += 1
        if self._backwards == 2 and self._accumulation is None:
            self._accumulation = self._run.watch_accumulation(self._model)
        self._losses.append(loss.detach())

    def _cleared(self):
        """zero_grad after a backward pass and no step: a loss scaler skipped it."""
        if self._backwards and not self._stepped:
            self._close()

    def _begin_update(self, optimizer):
        if id(optimizer) in self._stepped:  # of several, one steps more often than others
            self._close()
        self._open()

    def _end_update(self, optimizer):
        self._stepped.add(id(optimizer))
        if len(self._stepped) == len(self._optimizers):
            self._run.observe_parameters(self._model, replicas=self._replicas)
            self._close()

    # ---- what is told --------------------------------------------------------------------------

    def _observe_gradients(self):
        run, gradients = self._run, []
        if self._stepped or run._step == NO_STEP:
            return
        word = run._tensor_words.get((self._trained[0][0], "gradient")) if self._trained else None
        due = word is None or run._step >= word[0]
        for name, parameter in self._trained:
            if parameter.grad is None or parameter.grad.is_sparse:
                continue
            gradients.append(parameter.grad)
            if due:
                run.observe_tensor(name, parameter.grad, role="gradient")
        if gradients and self._pace.due(run._step):
            began = perf_counter()
            run._own_scalar("grad_norm", _norm(gradients))
            self._pace.cost(perf_counter() - began)

    def _tell_scalars(self):
        run, losses, tokens = self._run, self._losses, self._tokens
        self._losses, self._tokens, self._backwards = [], 0, 0
        self._pace.step_began()
        if run._step == NO_STEP:
            return
        if losses:
            run._own_scalar("loss", sum(map(float, losses)))
        if tokens:
            run._own_scalar("tokens", tokens)
        if self._scaler is not None and self._scaler.is_enabled():
            run._own_scalar("loss_scale", self._scaler.get_scale())
        rates = [group["lr"] for o in self._optimizers for group in o.param_groups][:_MOST_RATES]
        for number, rate in enumerate(rates):
            run._own_scalar("lr" if number == 0 else f"lr.{number}", float(rate))

    def describe(self):
        """One line: what is watched, and what is not."""
        optimizers = ", ".join(type(o).__name__ for o in self._optimizers) or "no optimizer"
        unknown = [type(o).__name__ for o in self._optimizers if self._updates[id(o)].kind is None]
        text = f"watching {len(self._trained)} trained parameters, {optimizers}"
        if self._replicas:
            text += ", the ranks' copies and sums of DistributedDataParallel"
        if unknown:
            text += f"; not the updates of {', '.join(unknown)} (its rule is not known; see observe_update)"
        return text


def watch(run, model, optimizer, scaler):
    """A Watch, or Unsupported."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise Unsupported(f"expected a torch.nn.Module, not {type(model).__name__}")
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    for one in optimizers:
        if not isinstance(one, torch.optim.Optimizer):
            raise Unsupported(f"expected an optimizer of torch.optim, or a list of them, not {type(one).__name__}")
    watched = Watch(run, model, optimizers, scaler)
    print(f"plumbline: {watched.describe()}", file=sys.stderr)
    return watched
