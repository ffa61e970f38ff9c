"""What a watch hooks besides the optimizer: outputs of chosen modules, buffers, Tensor.backward, the stages of the loop; and
what cannot be hooked."""

import ctypes
import fnmatch
import gc
import sys
import weakref
from time import perf_counter

from .._compiled import is_compiling
from .._kinds import KIND_TENSOR
from .._shards import FSDP
from .._tensors import Unsupported, local

_MOST = 1 << 20  # elements of a buffer: larger ones are tables
_COMPILED = "torch.compile leaves hooks out: train some steps without it, or tell of what matters by run.observe_routing and run.observe_tensor"
_UNHOOKED = {
    **dict.fromkeys(FSDP, "this rank's shards of weights, gradients and updates are watched, its sums over the ranks are not: train some steps "
                    "under DistributedDataParallel, whose sums are, or tell of them by run.observe_reduction"),
    "ScriptModule": "hooks do not run inside of a traced module: watch the model before torch.jit",
}


def _globs(activations):
    if activations is None:
        return []
    globs = [activations] if isinstance(activations, str) else list(activations)
    if not all(isinstance(glob, str) for glob in globs):
        raise Unsupported(f"activations is {activations!r}; expected names of modules, as named_modules() gives them, or globs")
    return globs


def _said(name, kind):
    text = f"{name} ({kind})" if name else kind
    return f"sums of {text}" if kind in FSDP else text


def _first(output):
    """The tensor that a module's output is, or begins with."""
    torch = sys.modules["torch"]
    if isinstance(output, (tuple, list)) and output:
        output = output[0]
    return output if torch.is_tensor(output) and output.is_floating_point() else None


class Modules:
    """Of one model that is watched."""

    def __init__(self, run, model, activations, guarded, prefix=""):
        self._run, self._guarded = run, guarded
        self._undo, self._prefix = [], prefix
        torch = sys.modules["torch"]
        self._buffers = [
            (prefix + name, b) for name, b in model.named_buffers()
            if b.is_floating_point() and 0 < b.numel() <= _MOST and bool(torch.isfinite(local(b)).all())  # a mask of -inf is none to watch
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
        if values is not None and values.requires_grad:  # of a forward pass that is trained on
            self._run.observe_tensor(name, values.detach(), role="activation")

    def _find_unhooked(self, model):
        """Declared, so that meta/probe-coverage names it with what would make it possible."""
        found = []
        for name, module in model.named_modules():
            kind = next((k for k in (c.__name__ for c in type(module).__mro__) if k in _UNHOOKED), None)
            if kind is None or any(name.startswith(other + ".") or not other for other, _ in found):
                continue  # within one that is named already
            found.append((name, kind))
            layer = self._prefix + _said(name, kind)
            self._run._declare_site(KIND_TENSOR, layer, f"unhooked: {_UNHOOKED[kind]}")
        return [_said(name, kind) for name, kind in found]

    def compiled_away(self, routers):
        """Outputs and routers of which nothing will be heard."""
        names = [*routers, *self.chosen]
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            layer = f"{names[0]}{more} within torch.compile"
            self._run._declare_site(KIND_TENSOR, layer, f"unhooked: {_COMPILED}")
            self.unhooked.append(layer)

    def observe_buffers(self):
        """Once a step; one comparison while nothing is due."""
        if not self._buffers:
            return
        word = self._buffer_word
        if word is None:
            word = self._buffer_word = self._run._tensor_words.get((self._buffers[0][0], None))
        if word is None or self._run._step >= word[0]:
            with self._run.together():
                for name, buffer in self._buffers:
                    self._run.observe_tensor(name, buffer)

    def remove(self):
        for one in self._undo:
            one()


class Backward:
    """Tensor.backward, which tells the watches whose trainer calls it on a scalar."""

    watches = weakref.WeakSet()
    original, running, number = None, 0, 0

    @classmethod
    def add(cls, watch):
        cls.watches.add(watch)
        tensor = sys.modules["torch"].Tensor
        if cls.original is None:
            original = cls.original = tensor.backward

            def backward(self, *arguments, **options):
                told = list(cls.watches)
                cls.number += 1
                for one in told:
                    one._guarded(one._before_backward, cls.number, self)
                    one.stages.begin("backward")
                cls.running += 1
                try:
                    return original(self, *arguments, **options)
                finally:
                    cls.running -= 1
                    for one in told:
                        one.stages.end("backward")

            backward.__doc__ = original.__doc__
            tensor.backward = backward

    @classmethod
    def remove(cls, watch):
        cls.watches.discard(watch)
        if not cls.watches and cls.original is not None:
            sys.modules["torch"].Tensor.backward = cls.original
            cls.original = None


class _Span:
    """One kind's, which is open or not. What the call takes is made once: it runs where all caches are the trainer's."""

    __slots__ = ("kind", "name", "number", "where", "open")

    def __init__(self, kind, name):
        self.kind, self.name = kind.encode(), None if name is None else name.encode()
        self.number = ctypes.c_uint64()
        self.where = ctypes.byref(self.number)
        self.open = False


class Stages:
    """What the loop does, as spans; each kind until the trainer has spans of that kind itself."""

    def __init__(self, run):
        self._run, self._spans = run, {}  # kind -> _Span
        self._begin, self._end = run._short.plumbline_span_begin, run._short.plumbline_span_end
        self._undo, self._evaluated = [], -1.0

    def begin(self, kind, name=None):
        run, span = self._run, self._spans.get(kind)
        if span is None:
            span = self._spans[kind] = _Span(kind, name)
        elif span.open:  # an exception has left it
            self.end(kind)
        if run._told_stages and (name or kind) in run._told_stages:
            return
        span.number.value = 0
        status = self._begin(run._handle, span.kind, span.name, span.where)
        if status < 0:
            run._check(("span", kind), status)
        span.open = span.number.value != 0

    def end(self, kind):
        span = self._spans.get(kind)
        if span is not None and span.open:
            span.open = False
            status = self._end(self._run._handle, span.number.value)
            if status < 0:
                self._run._check("span", status)

    def evaluates(self):
        """A forward pass that is not trained on: a rank that evaluates while others wait for it does not hang. Once a second."""
        now = perf_counter()
        if now - self._evaluated >= 1:
            self._evaluated = now
            self.begin("evaluation")
            self.end("evaluation")

    def hook(self):
        """Data and garbage collections; the others are begun by who hooks them anyway."""
        for source in (Loading, Collections):
            source.add(self)
            self._undo.append(source)

    def remove(self):
        undo, self._undo = self._undo, []
        for source in undo:
            source.remove(self)
        for kind in list(self._spans):
            self.end(kind)


class Loading:
    """torch's data loaders: the wait for the next batch."""

    stages = weakref.WeakSet()
    kind, original = None, None

    @classmethod
    def add(cls, stages):
        cls.stages.add(stages)
        module = sys.modules.get("torch.utils.data.dataloader")
        kind = getattr(module, "_BaseDataLoaderIter", None)
        if cls.original is not None or kind is None:
            return
        original = cls.original = kind.__next__
        cls.kind = kind

        def __next__(self):
            for one in list(cls.stages):
                one.begin("data")
            try:
                return original(self)
            finally:
                for one in list(cls.stages):
                    one.end("data")

        kind.__next__ = __next__

    @classmethod
    def remove(cls, stages):
        cls.stages.discard(stages)
        if not cls.stages and cls.original is not None:
            cls.kind.__next__ = cls.original
            cls.original = None


class Collections:
    """Full garbage collections; those of the younger generations are short, and too many to be told."""

    stages = weakref.WeakSet()
    OLDEST, NAME = 2, "garbage collection"

    @classmethod
    def add(cls, stages):
        cls.stages.add(stages)
        if cls._collects not in gc.callbacks:
            gc.callbacks.append(cls._collects)

    @classmethod
    def _collects(cls, phase, info):
        if info["generation"] < cls.OLDEST:
            return
        for one in list(cls.stages):
            if phase == "start":
                one.begin("other", cls.NAME)
            else:
                one.end("other")

    @classmethod
    def remove(cls, stages):
        cls.stages.discard(stages)
        if not cls.stages and cls._collects in gc.callbacks:
            gc.callbacks.remove(cls._collects)
