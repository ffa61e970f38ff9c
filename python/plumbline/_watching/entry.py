"""Observes the forward passes of light steps in the `forward` of the module's class. One hook of a module is enough to
disable torch's short path through `Module.__call__`. This costs 20 us if the trainer has filled the caches."""

import functools
import sys
import types

from .._compiled import is_compiling
from .._routers import has_router


def _dynamo():
    """Returns a function that returns whether torch.compile traces the caller."""
    return getattr(getattr(sys.modules["torch"], "compiler", None), "is_dynamo_compiling", is_compiling())


class _Replacement:
    """Replaces the forward of one module's class, and a hook of the module. `light`: a Light."""

    def __init__(self, light, module, hook):
        self._light, self._module, self._hook = light, module, hook
        self._kind, self._own, self._ours, self._place = type(module), None, None, None
        alike = sum(type(one) is self._kind for one in module.modules())
        self._fits = alike == 1 and not isinstance(module, sys.modules["torch"].jit.ScriptModule)

    def put(self):
        """Replaces the class's forward and hides the hook from torch, until take(). Returns False if the hook must
        stay."""
        module = self._module
        if not self._fits or "forward" in vars(module) or has_router(self._kind) or not isinstance(self._kind.forward, types.FunctionType):
            return False
        number = next((number for number, hook in module._forward_pre_hooks.items() if hook is self._hook), None)
        if number is None:
            return False
        self._place = number, getattr(module, "_forward_pre_hooks_with_kwargs", {}).pop(number, None)
        del module._forward_pre_hooks[number]
        self._own = self._kind.__dict__.get("forward")
        if self._ours is None or self._ours.__wrapped__ is not self._kind.forward:
            self._ours = self._made(self._kind.forward)
        self._kind.forward = self._ours
        return True

    def take(self):
        """Restores the state before put(). Keeps wrappers that other code has put around ours."""
        if self._place is None:
            return
        (number, words), self._place, module = self._place, None, self._module
        module._forward_pre_hooks[number] = self._hook
        if words is not None:
            module._forward_pre_hooks_with_kwargs[number] = words
        if self._kind.__dict__.get("forward") is self._ours:
            if self._own is None:
                del self._kind.forward
            else:
                self._kind.forward = self._own

    @staticmethod
    def _wraps(forward, original):
        # torch.jit.script reads the source of the wrapped function, and its names from the wrapper's globals.
        names = getattr(original, "__globals__", globals())
        forward = types.FunctionType(forward.__code__, names, forward.__name__, None, forward.__closure__)
        return functools.update_wrapper(forward, original)


class Entry(_Replacement):
    """The entry of the watched module, with its BeforeForward: counts the passes. If put() fails, the hook counts."""

    def _made(self, original):
        light, module, other = self._light, self._module, self._other
        compiling, grad_enabled = _dynamo(), sys.modules["torch"].is_grad_enabled
        number, size, failure = int, len, Exception  # the wrapper's globals are the trainer's

        def forward(self, *inputs, **words):
            if self is module and not compiling() and light.on:
                if self.training and grad_enabled():
                    try:
                        place = light.place
                        if place is not None:
                            count = (inputs if place.__class__ is number else words)[place].numel()
                            if count.__class__ is number:  # a tracer of torch.fx returns another object
                                light.tokens += count
                        light.inputs, light.words = inputs, words
                    except failure:  # the arguments differ from those before, so this step is a whole one
                        light.interrupted()
                        other(self, inputs, words)
                else:
                    other(self, inputs, words)
            if not words and size(inputs) == 1:  # a call with unpacked arguments costs some microseconds when the trainer has filled the caches
                return original(self, inputs[0])
            return original(self, *inputs, **words)

        return self._wraps(forward, original)

    def _other(self, module, inputs, words):
        """Handles a pass in eval mode or without gradients, or of a step that has become a whole one."""
        if not self._light.on or not self._light.forward(module, inputs, words):
            self._hook._call(module, inputs, words)


class Within(_Replacement):
    """The module inside of DistributedDataParallel, with its OnlyHere: evaluations may call it without the wrapper."""

    def _made(self, original):
        light, module = self._light, self._module
        compiling, grad_enabled, size = _dynamo(), sys.modules["torch"].is_grad_enabled, len

        def forward(self, *inputs, **words):
            if self is module and not compiling() and light.on and not (self.training and grad_enabled()):
                light.evaluates()
            if not words and size(inputs) == 1:
                return original(self, inputs[0])
            return original(self, *inputs, **words)

        return self._wraps(forward, original)
