"""torch.compile: what its compiler must not see of ours, and what is around a model that was compiled.

The compiler follows Python code, hooks too, and refuses what it cannot make part of a graph. So each of ours that stands
where it may come along asks first whether it does; the compiler answers that itself, and leaves the rest out.
"""

import sys


def _never():
    return False


def is_compiling():
    """The function to ask; torch's own, which the compiler knows by heart."""
    torch = sys.modules["torch"]
    return getattr(getattr(torch, "compiler", None), "is_compiling", _never)


def outside(function):
    """The function, so that nothing in it is compiled where a compiled one calls it between two graphs. Without a compiler loaded: itself."""
    disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
    return function if disable is None else disable(function)


def unwrapped(model):
    """The trainer's module, of what torch.compile has made of it."""
    return model._orig_mod if type(model).__name__ == "OptimizedModule" else model


def is_compiled(model):
    return unwrapped(model) is not model or getattr(model, "_compiled_call_impl", None) is not None


def compiles():
    """Has the compiler made anything in this process?"""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return any(counters["frames"].values()) if "frames" in counters else False
