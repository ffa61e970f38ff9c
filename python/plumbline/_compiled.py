"""torch.compile: hides our functions from its compiler, and finds the module from which a compiled model was made.

The compiler follows Python code, hooks too, and refuses code that cannot be part of a graph. So each of our functions that it may reach first checks
whether the compiler runs. The compiler evaluates this check itself and does not compile the rest of the function.
"""

import sys


def _never():
    return False


def is_compiling():
    """Returns the function that checks whether the compiler runs. It is torch's, because the compiler evaluates that one itself."""
    torch = sys.modules["torch"]
    return getattr(getattr(torch, "compiler", None), "is_compiling", _never)


def outside(function):
    """Returns the function changed so that nothing in it is compiled if a compiled function calls it between two graphs. Without a loaded compiler
    returns it unchanged."""
    disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
    return function if disable is None else disable(function)


def unwrapped(model):
    """Returns the trainer's module inside of the module that torch.compile has made of it."""
    return model._orig_mod if type(model).__name__ == "OptimizedModule" else model


def is_compiled(model):
    return unwrapped(model) is not model or getattr(model, "_compiled_call_impl", None) is not None


def compiles():
    """Returns whether the compiler has compiled anything in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return any(counters["frames"].values()) if "frames" in counters else False
