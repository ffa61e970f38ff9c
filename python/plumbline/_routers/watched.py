"""Routers of a watched model: found by their structure, observed in due steps.

The class's `forward` is replaced. So a module may be copied, pickled or replicated without change, and arguments may be given by keyword. No hook
stays installed after an exception of the trainer."""

import contextlib
import functools
import inspect
import sys
import types
import weakref
from time import thread_time

from .._compiled import is_compiling
from .._library import CAPTURING
from .evidence import NotKnown, NotThisTime, evidence
from .find import find
from .loads import Loads, LoadsPace
from .trace import Follower, listener

_LONGEST = 1024  # the most steps between two tries, if nothing is known about a router
_MOST_UNCLEAR = 8  # number of calls, none of which was understood, before this is reported
_MOST_WAITING = 4  # the most calls of a layer that wait for the first step's end


class OnlyHere:
    """A hook before a module's forward pass. In a copied or saved model the hook is replaced by `{}.get`, which returns the inputs unchanged. So
    loading the model needs no Plumbline."""

    def __init__(self, call):
        self._call, self._compiling = call, is_compiling()
        self.__name__ = "plumbline_forward"  # torch.jit.script reads this attribute of every hook

    def __call__(self, module, inputs):
        if not self._compiling():
            self._call(module, inputs)

    def __deepcopy__(self, memo):
        return {}.get

    def __reduce__(self):
        return getattr, ({}, "get")


class WithKeywords(OnlyHere):
    """Does the same as OnlyHere for a hook that also gets keyword arguments. In a copy it is replaced by nullcontext's
    exit, which returns None."""

    def __call__(self, module, inputs, words):
        if not self._compiling():
            self._call(module, inputs, words)

    def __deepcopy__(self, memo):
        return contextlib.nullcontext().__exit__

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")


def before_forward(module, call):
    """Calls `call(module, inputs, keywords)` before the module's forward pass. Returns a function that ends this."""
    if "with_kwargs" in inspect.signature(module.register_forward_pre_hook).parameters:  # from torch 2.0 on
        return module.register_forward_pre_hook(WithKeywords(call), with_kwargs=True).remove
    return module.register_forward_pre_hook(OnlyHere(lambda module, inputs: call(module, inputs, {}))).remove


class BeforeForward(OnlyHere):
    """The hook of a watched model. `light`: counts the passes of light steps (a Light), or None."""

    light = None

    def __call__(self, module, inputs, words=None):
        if self._compiling():
            return
        light = self.light
        if light is not None:
            if module.training is light.trains is True and light.grad_enabled():
                try:
                    return light.count(inputs, words)
                except Exception:  # the arguments differ from those before, so this step is a whole one
                    light.interrupted()
            elif light.forward(module, inputs, words):
                return
        self._call(module, inputs, words or {})


class BeforeForwardWithKeywords(BeforeForward, WithKeywords):
    __deepcopy__, __reduce__ = WithKeywords.__deepcopy__, WithKeywords.__reduce__


def hook_forward(module, call):
    """Does the same as before_forward, but returns (the hook, a function that removes it)."""
    if "with_kwargs" in inspect.signature(module.register_forward_pre_hook).parameters:
        hook = BeforeForwardWithKeywords(call)
        return hook, module.register_forward_pre_hook(hook, with_kwargs=True).remove
    hook = BeforeForward(call)
    return hook, module.register_forward_pre_hook(hook).remove


class AfterWithKeywords(WithKeywords):
    """A hook after the forward pass, which also gets its output."""

    def __call__(self, module, inputs, words, output):
        if not self._compiling():
            self._call(module, inputs, words, output)


def after_forward(module, call):
    """Does the same as before_forward, but calls `call(module, inputs, keywords, output)` after the pass. Does nothing
    before torch 2.0."""
    if "with_kwargs" not in inspect.signature(module.register_forward_hook).parameters:
        return lambda: None
    return module.register_forward_hook(AfterWithKeywords(call), with_kwargs=True).remove


class _Classes:
    """The classes whose forward was replaced, and the objects that each notifies."""

    entries = {}  # id of a module -> the Router of the module
    plain = {}  # class -> (its own forward or None, number of its routers)

    @classmethod
    def add(cls, module, router):
        kind = type(module)
        own, count = cls.plain.get(kind, (kind.__dict__.get("forward"), 0))
        cls.plain[kind] = (own, count + 1)
        cls.entries[id(module)] = router
        if count == 0:
            kind.forward = cls._forward(kind.forward)

    @classmethod
    def _forward(cls, original):
        entries, compiling = cls.entries, is_compiling()

        def forward(self, *arguments, **options):
            if compiling():
                return original(self, *arguments, **options)
            router = entries.get(id(self))
            if router is None or not router.wants(self):
                return original(self, *arguments, **options)
            return router.heard(original, self, arguments, options)

        # torch.jit.script reads the source of the wrapped function, and its names from the wrapper's globals.
        names = getattr(original, "__globals__", globals())
        forward = types.FunctionType(forward.__code__, names, forward.__name__, None, forward.__closure__)
        return functools.update_wrapper(forward, original)

    @classmethod
    def remove(cls, module):
        kind = type(module)
        if cls.entries.pop(id(module), None) is None or kind not in cls.plain:
            return
        own, count = cls.plain[kind]
        cls.plain[kind] = (own, count - 1)
        if count == 1:
            del cls.plain[kind]
            if own is not None:
                kind.forward = own
            elif "forward" in kind.__dict__:
                del kind.forward


def has_router(kind):
    """Returns whether the forward of that class is already ours."""
    return kind in _Classes.plain


class Router:
    """One router that was found."""

    def __init__(self, routers, found):
        self._routers, self.found = routers, found
        self._word = None  # the due word of the site, as soon as the watch records it
        self._state = "new"  # "new" until the first step's end; then "ours", or "theirs" if the trainer records the layer
        self._waiting, self._seen = [], 0
        self._unclear = 0  # number of calls so far that were not understood, although another call may be
        # The step of the next try; number of tries in which no call was understood, after which intervals are longer.
        self._again, self._misses = 0, 0
        self._open = None  # the observer of the running call
        self._loads, self._heard_step = Loads(found), None
        self._modules = [weakref.ref(m) for m in found.modules]

    def wants(self, module):
        """Returns whether this call, or the measurement of its loads, is due. In most steps this makes only a few
        comparisons."""
        run = self._routers.run
        word = self._word
        if run._step < (self._again if word is None else word[0]):
            return self._loads_due(module)
        if not any(r() is module for r in self._modules):
            return False  # another module has this id by now
        return self._state != "theirs" and self._routers.live(module) and self._seen < _MOST_WAITING

    def _loads_due(self, module):
        if self._open is not None or not self._loads.ready(module):
            return False
        run = self._routers.run
        return run._step != self._heard_step and self._routers.pace.due(run._step) and self._routers.live(module)

    def _record_loads(self, original, module, arguments, options):
        """Runs the module's forward, once and unchanged, and observes only the choice."""
        began, listening = thread_time(), self._loads.listen()
        bias = self._loads.begins()
        self._routers.pace.spent(began)
        with listening:
            out = original(module, *arguments, **options)
        began = thread_time()
        with sys.modules["torch"].no_grad():
            arguments_of_call = (self._routers.run, self.found.name, listening, bias, _flat(out), self._routers.tokens)
            self._routers.guarded(self._loads.record, *arguments_of_call)
        self._routers.pace.spent(began, listening.operations)
        return out

    def heard(self, original, module, arguments, options):
        """Runs the module's forward, once and unchanged, and observes it from the first operation to the last."""
        if self._open is not None:
            heard = self._open["heard"]
            begin = heard.place() if heard is not None else None
            out = original(module, *arguments, **options)
            self._routers.guarded(self._inner_done, module, out, begin)
            return out
        if self._word is not None and self._routers.run._step < self._word[0]:
            return self._record_loads(original, module, arguments, options)
        self._open = opened = {"inner": [], "tokens": [], "shape": None, "follower": None, "heard": None, "spans": []}
        try:
            self._routers.guarded(self._begin, opened, module, arguments, options)
            if opened["follower"] is None:
                return original(module, *arguments, **options)
            opened["heard"] = self._loads.listen()
            with opened["listener"], opened["heard"]:
                out = original(module, *arguments, **options)
        finally:
            self._open = None
        self._routers.guarded(self._done, opened, module, out)
        return out

    # ---- around the call -------------------------------------------------------------------------

    def _begin(self, opened, module, arguments, options):
        torch = sys.modules["torch"]
        given = [v for v in (*arguments, *options.values()) if torch.is_tensor(v) and v.is_floating_point() and v.dim() > 1]
        if not given:
            return
        opened["shape"] = tuple(given[0].shape[:2]) if given[0].dim() == 3 else None
        opened["tokens"].append(given[0].detach())
        stored = [t for m in self.found.modules for t in (*m.parameters(recurse=False), *m.buffers())]
        follower = Follower(self.found.weights(), stored, self.found.experts(), self.found.top_k)
        opened["listener"] = listener(follower, self._routers.charge)
        opened["follower"] = follower

    def _inner_done(self, module, out, begin):
        if module is not self.found.inner:
            return
        self._open["inner"] = _flat(out)
        if begin is not None:
            self._open["spans"].append((begin, self._open["heard"].place()))

    def _done(self, opened, module, out):
        follower = opened["follower"]
        if opened["listener"].broken is not None:
            self._missed()
            raise opened["listener"].broken
        if module is self.found.inner:
            opened["inner"] = _flat(out)
        opened["tokens"].append(follower.entered)
        try:
            with sys.modules["torch"].no_grad():
                known = evidence(follower, self.found, opened, opened["shape"], self._routers.tokens)
        except NotKnown as why:
            self._unclear += isinstance(why, NotThisTime)
            if isinstance(why, NotThisTime) and (self._heard_step is not None or self._unclear < _MOST_UNCLEAR):
                self._again = self._routers.run._step + 1
                return
            self._missed()
            self._routers.refuse(self.found.name, str(why))
            return
        self._heard_step = self._routers.run._step
        with sys.modules["torch"].no_grad():
            self._loads.learn(known, follower, opened["heard"], opened["spans"], opened["inner"], module)
        if self._state == "new":
            self._seen += 1
            self._waiting.append(known)
        else:
            self._record(known)

    def _missed(self):
        self._misses += 1
        self._again = self._routers.run._step + min(1 << self._misses, _LONGEST)

    def step_ends(self):
        """In the first step the trainer may record the layer itself; then the watch does not record it."""
        if self._state != "new" or not self._waiting:
            return
        run, name = self._routers.run, self.found.name
        waiting, self._waiting, self._seen = self._waiting, [], 0
        self._state = "theirs" if name in run._sites else "ours"
        if self._state == "theirs" or run._step >= CAPTURING:
            return
        for known in waiting:
            self._record(known)

    def _record(self, known):
        run = self._routers.run
        run.observe_routing(self.found.name, **known)
        self._word = run._due.get(self.found.name)
        if self._word is None:  # there is no run
            self._missed()


def _flat(value):
    """Returns the tensors in a module's result."""
    torch = sys.modules["torch"]
    if torch.is_tensor(value):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for one in value for t in _flat(one)] if isinstance(value, (list, tuple)) else []


class Routers:
    """The routers of one watched model. `live` returns whether the forward pass in progress belongs to training."""

    def __init__(self, run, model, guarded, backward, prefix=""):
        """backward(): returns whether a backward pass runs, which may repeat a forward pass. prefix: the text before
        all names."""
        self.run, self.guarded, self.backward = run, guarded, backward
        self.tokens, self.training, self.pace = None, False, LoadsPace(run._budget)
        self._undo, self.refused = [], {}
        found, refused = find(model)
        self.refused = dict(refused)
        found = [f for f in found if not any(id(m) in _Classes.entries for m in f.modules)]
        self.routers = [Router(self, f) for f in found]
        for router in self.routers:
            router.found.name = prefix + router.found.name
            for module in router.found.modules:
                _Classes.add(module, router)
                self._undo.append(functools.partial(_Classes.remove, module))
        if self.routers:
            self._watch_ids(model)

    def _watch_ids(self, model):
        """Token ids may be given to the model by keyword; its embedding gets them by position."""
        torch = sys.modules["torch"]
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                self._undo.append(module.register_forward_pre_hook(OnlyHere(self._embedded)).remove)

    def remove(self):
        undo, self._undo = self._undo, []
        for one in undo:
            one()

    # ---- forward passes --------------------------------------------------------------------------

    def forward(self, training, inputs=()):
        """Called when the model's forward pass begins."""
        self.training, self.tokens = training, None
        for value in inputs:
            self.ids(value)

    def _embedded(self, module, inputs):
        if self.training and inputs:
            self.ids(inputs[0])

    def ids(self, value):
        torch = sys.modules["torch"]
        if self.tokens is None and torch.is_tensor(value) and value.dim() == 2 and not value.is_floating_point():
            if value.dtype is not torch.bool:
                self.tokens = tuple(value.shape)

    def live(self, module):
        torch = sys.modules["torch"]
        if not self.training or self.backward() or not module.training or self.run._step >= CAPTURING:
            return False
        return not torch.jit.is_tracing()

    def charge(self, spent):
        self.run._spent += spent

    def step_ends(self):
        for router in self.routers:
            router.step_ends()
        self.pace.step_ends()

    def refuse(self, name, why):
        self.run._warn_once(("router", name), f"watch: {name} looks like a router, but {why}: not observed")

    def describe(self):
        """Returns a text about the found routers, and about those that were not hooked; empty if there are none."""
        text, kinds = "", {}
        for router in self.routers:
            kinds.setdefault(router.found.words(), []).append(router.found.name)
        if kinds:
            named = "; ".join(f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {words}"
                              for words, names in kinds.items())  # fmt: skip
            count = len(self.routers)
            text = f", {count} router{'s' if count > 1 else ''} ({named})"
        for name, why in self.refused.items():
            text += f"; not the router {name} ({why})"
        return text
