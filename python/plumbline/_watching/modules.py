"""Hooks of a watch other than the optimizer's: outputs of chosen modules, buffers, Tensor.backward; and the list of modules that cannot be hooked."""

import fnmatch
import sys
from threading import get_ident

from .._compiled import is_compiling, outside
from .._kinds import KIND_TENSOR
from .._tensors import Unsupported, local
from .losses import Weighted
from .stages import Weakly, take_place

_POSITIONS = ("positions", "position_ids", "pos_ids", "position")
_MOST = 1 << 20  # most elements of a watched buffer: larger ones are tables
_COMPILED = "torch.compile skips hooks: train some steps without it, or report with run.observe_routing and run.observe_tensor"
_NOT_CALLED = ("no forward pass of the model or of its modules was observed before backward: watch the module that the trainer calls, or report "
               "with run.observe_routing and run.observe_tensor")  # fmt: skip
_UNHOOKED = {
    "ScriptModule": "hooks do not run inside a traced module: watch the model before torch.jit",
}


def _globs(activations):
    if activations is None:
        return []
    globs = [activations] if isinstance(activations, str) else list(activations)
    if not all(isinstance(glob, str) for glob in globs):
        raise Unsupported(f"activations is {activations!r}; expected names of modules, as named_modules() gives them, or globs")
    return globs


def _layer_name(name, kind):
    return f"{name} ({kind})" if name else kind


def _role(name, buffer):
    """Returns "positions" if the name is one of positions that count up, which may have a floating dtype; else None."""
    counts = name.rpartition(".")[2] in _POSITIONS and buffer.dim() in (1, 2)
    return "positions" if counts else None


def _first(output):
    """Returns the tensor that a module's output is, or begins with."""
    torch = sys.modules["torch"]
    if isinstance(output, (tuple, list)) and output:
        output = output[0]
    return output if torch.is_tensor(output) and output.is_floating_point() else None


def options_of(gradient, retain_graph, create_graph, inputs):
    """Returns the arguments of Tensor.backward that differ from its defaults."""
    named = {"gradient": gradient, "retain_graph": retain_graph, "inputs": inputs}
    options = {name: value for name, value in named.items() if value is not None}
    return options if create_graph is False else {**options, "create_graph": create_graph}


class Modules:
    """The hooks of one watched model."""

    def __init__(self, run, model, activations, guarded, prefix=""):
        self._run, self._guarded = run, guarded
        self._undo, self._prefix = [], prefix
        torch = sys.modules["torch"]
        self._buffers = [
            (prefix + name, b) for name, b in model.named_buffers()
            if b.is_floating_point() and 0 < b.numel() <= _MOST and bool(torch.isfinite(local(b)).all())  # does not watch a mask of -inf
        ]  # fmt: skip
        self._buffer_word = None
        self.chosen = self._choose(model, _globs(activations))
        self.unhooked = self._find_unhooked(model)

    def _choose(self, model, globs):
        chosen, used = [], set()
        for name, module in model.named_modules():
            hit = next((glob for glob in globs if fnmatch.fnmatchcase(name, glob)), None)
            if name and hit is not None:
                used.add(hit)
                chosen.append(name)
                self._undo.append(module.register_forward_hook(self._hook(self._prefix + name)).remove)
        unused = [glob for glob in globs if glob not in used]
        if unused:
            raise Unsupported(f"activations: no module is named {unused[0]!r}; see model.named_modules()")
        return chosen

    def _hook(self, name):
        compiling = is_compiling()

        def observe(module, _inputs, output):
            if not compiling() and module.training:
                self._guarded(self._observe, name, output)

        return observe

    def _observe(self, name, output):
        values = _first(output)
        if values is not None and values.requires_grad:  # the output of a forward pass that is trained on
            self._run.observe_tensor(name, values.detach(), role="activation")

    def _find_unhooked(self, model):
        """Declares modules that cannot be hooked, so that meta/probe-coverage names them with the change that would help."""
        found = []
        for name, module in model.named_modules():
            kind = next((k for k in (c.__name__ for c in type(module).__mro__) if k in _UNHOOKED), None)
            if kind is None or any(name.startswith(other + ".") or not other for other, _ in found):
                continue  # this module is inside of a module that is already named
            found.append((name, kind))
            layer = self._prefix + _layer_name(name, kind)
            self._run._declare_site(KIND_TENSOR, layer, f"unhooked: {_UNHOOKED[kind]}")
        return [_layer_name(name, kind) for name, kind in found]

    def compiled_away(self, routers):
        """Declares outputs and routers that cannot be observed."""
        names = [*routers, *self.chosen]
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            layer = f"{names[0]}{more} within torch.compile"
            self._run._declare_site(KIND_TENSOR, layer, f"unhooked: {_COMPILED}")
            self.unhooked.append(layer)

    def not_heard(self, routers):
        """Declares outputs and routers of a model whose forward passes are not seen."""
        names = [*routers, *self.chosen]
        if names:
            self._run._declare_site(KIND_TENSOR, names[0], f"unhooked: {_NOT_CALLED}")

    def observe_buffers(self):
        """Called once a step; costs one comparison while nothing is due."""
        if not self._buffers:
            return
        word = self._buffer_word
        if word is None:
            word = self._buffer_word = self._run._tensor_words.get((self._buffers[0][0], _role(*self._buffers[0])))
        if word is None or self._run._step >= word[0]:
            with self._run.together():
                for name, buffer in self._buffers:
                    self._run.observe_tensor(name, buffer, role=_role(name, buffer))

    def remove(self):
        for one in self._undo:
            one()


class Backward:
    """Hooks of Tensor.backward, and of the functions that frameworks call instead. They notify the watches whose
    trainer calls them on a scalar."""

    watches = Weakly()
    running, number = 0, 0
    _undo, _inside = [], set()  # _inside: threads that are inside of a backward pass
    _places = []  # (owner, name, the original function, ours)
    light, _put = None, []  # the Light whose steps are light now, and the functions that it has put in these places

    @classmethod
    def add(cls, watch):
        if cls.light is not None:
            cls.light.leave()
        cls.watches.add(watch)
        if not cls._undo:
            torch, schedules = sys.modules["torch"], sys.modules.get("megatron.core.pipeline_parallel.schedules")
            cls._take_place(torch.Tensor, "backward", cls._of_tensor)
            cls._take_place(torch.autograd, "backward", cls._of_losses)  # pipelines and Megatron-core call this function
            if hasattr(schedules, "custom_backward"):  # this function calls torch's engine itself
                cls._take_place(schedules, "custom_backward", cls._of_losses)

    @classmethod
    def _take_place(cls, home, name, make):
        plain = getattr(home, name)
        ours = outside(make(plain))
        cls._undo.append(take_place(home, name, plain, ours))
        cls._places.append((home, name, plain, ours))

    @classmethod
    def lighten(cls, light):
        """Replaces Tensor.backward by light.backward(plain, ours) until the watch ends, because each change of a
        class drops its caches. The other places get their original functions. Returns False, with nothing changed, if
        another hook is in one of these places."""
        tensor = sys.modules["torch"].Tensor
        put = [light.backward(plain, ours) if home is tensor else plain for home, _, plain, ours in cls._places]
        before = [cls._there(home, name) for home, name, _, _ in cls._places]
        if any(there is not ours and (there is not one or home is not tensor) for there, one, (home, _, _, ours) in zip(before, put, cls._places)):
            return False
        cls.light, cls._put = light, put
        for there, one, (home, name, _, _) in zip(before, put, cls._places):
            if there is not one:
                setattr(home, name, one)
        return True

    @staticmethod
    def _there(home, name):
        return home.__dict__.get(name)

    @classmethod
    def restore(cls, watch_ends=False):
        """Ends light steps. Keeps wrappers that other code has put around our functions since then."""
        cls.light = None
        for (home, name, _, ours), one in zip(cls._places, cls._put):
            if (watch_ends or home is not sys.modules["torch"].Tensor) and cls._there(home, name) is one:
                setattr(home, name, ours)
        if watch_ends:
            cls._put = []

    @classmethod
    def runs(cls):
        return cls.running > 0

    @classmethod
    def _pass(cls, loss, plain, arguments, options):
        watches = cls.watches.refs if len(cls.watches.refs) == 1 else cls.of_thread()
        cls.number += 1
        for one in watches:
            watch = one()
            if watch is not None:
                watch.backward_begins(cls.number, loss)
        cls.running += 1
        here = get_ident()
        nested = here in cls._inside
        cls._inside.add(here)
        try:
            return plain(*arguments, **options)
        finally:
            cls.running -= 1
            if not nested:
                cls._inside.discard(here)
            for one in watches:
                watch = one()
                if watch is not None:
                    watch.backward_ends()

    @classmethod
    def _of_tensor(cls, plain):
        def backward(self, *arguments, **options):
            given = arguments[0] if arguments else options.get("gradient")
            loss = self if given is None else Weighted.loss(self, given)
            return cls._pass(self if loss is None else loss, plain, (self, *arguments), options)

        return backward

    @classmethod
    def _of_losses(cls, plain):
        """Handles a function that gets tensors and their gradients; for a loss there are none."""

        def backward(tensors, *arguments, **options):
            loss = None if get_ident() in cls._inside else cls._loss(tensors, arguments, options)
            return plain(tensors, *arguments, **options) if loss is None else cls._pass(loss, plain, (tensors, *arguments), options)

        return backward

    @staticmethod
    def _loss(tensors, arguments, options):
        """Returns the tensor that is a loss; if there are several, their sum; or None."""
        given = arguments[0] if arguments else next((options[name] for name in ("grad_tensors", "grad_output") if name in options), None)
        tensors = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
        given = list(given) if isinstance(given, (list, tuple)) else [given] * len(tensors)
        if not tensors or len(given) != len(tensors):
            return None
        parts = [Weighted.loss(*pair) for pair in zip(tensors, given)]
        if any(part is None for part in parts):
            return None
        return parts[0] if len(parts) == 1 else sum(part.detach().reshape(()) for part in parts)

    @classmethod
    def of_thread(cls):
        """Returns the watches whose model ran last in this thread, and those of the same runs whose model was not
        seen yet. If none ran here, returns all: two trainers in two threads have their own losses."""
        here = get_ident()
        ran = {id(one()._run) for one in cls.watches.refs if getattr(one(), "thread", None) == here}
        if not ran:
            return cls.watches.refs
        return tuple(one for one in cls.watches.refs if getattr(one(), "thread", here) == here or (one().thread is None and id(one()._run) in ran))

    @classmethod
    def remove(cls, watch):
        cls.watches.discard(watch)
        cls.restore(watch_ends=True)
        if not cls.watches.refs:
            undo, cls._undo, cls._places = cls._undo, [], []
            for one in undo:
                one()
