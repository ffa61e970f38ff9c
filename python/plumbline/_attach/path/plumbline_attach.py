"""The hook of `plumb run` in a Python process: waits for torch, then for optimizers that step. Until torch is imported it costs one
comparison per imported module.

It is loaded by its folder, not as a part of the package, because most Python processes below `plumb run` need none of it.
"""

import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _line(text):
    """Prints one line. A closed standard error is no error."""
    try:
        sys.stderr.write("plumbline: %s\n" % " ".join(text.split()))
        sys.stderr.flush()
    except Exception:
        pass


class _Loader:
    """Loads torch by its own loader, then registers the hook."""

    def __init__(self, plain, finder):
        self._plain, self._finder = plain, finder

    def __getattr__(self, name):
        return getattr(self._plain, name)

    def create_module(self, spec):
        return self._plain.create_module(spec)

    def exec_module(self, module):
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        for owner, name in ((module, "__loader__"), (module.__spec__, "loader")):
            setattr(owner, name, self._plain)
        try:
            self._plain.exec_module(module)
        except BaseException:
            sys.meta_path.insert(0, self._finder)  # the trainer may try again
            raise
        _guarded(_torch_loaded, module)


class _Finder:
    """Finds torch as the other finders do. Also called by programs that only ask whether there is a torch."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None


def install():
    """Called once at the start of the interpreter."""
    if os.environ.get("PLUMBLINE_DISABLE", "") not in ("", "0") or any(type(one).__name__ == "_Finder" for one in sys.meta_path):
        return
    if "torch" in sys.modules:
        _guarded(_torch_loaded, sys.modules["torch"])
    else:
        sys.meta_path.insert(0, _Finder())


# ---- optimizers that step ------------------------------------------------------------------------

_seen = {}  # id of an optimizer -> its weak reference, if nothing more is to be done for it
_on = True


def _guarded(body, *arguments):
    """Calls `body`. If it fails, prints one line, and this process is no longer watched."""
    global _on
    try:
        body(*arguments)
    except Exception as error:
        _on = False
        text = str(error) if type(error).__name__ == "Refused" else repr(error)
        _line("this process is not watched: %s" % (text or type(error).__name__))


def _torch_loaded(torch):
    from torch.optim import optimizer

    register = getattr(optimizer, "register_optimizer_step_post_hook", None)  # torch 2.0 and newer
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    if register is None:
        return _wrap(optimizer.Optimizer)

    def stepped(one, *_):
        """torch's compiler follows this function, and evaluates the first condition itself."""
        if compiling is not None and compiling():
            return
        if _on and id(one) not in _seen:
            _guarded(_take, one)

    register(stepped)


def _wrap(kind):
    """Replaces the step of each class of optimizers when its first object is made, as torch 1.13's own profiler does there."""
    import functools

    plain = kind._hook_for_profile

    def watched(step):
        @functools.wraps(step)
        def wrapper(*arguments, **options):
            result = step(*arguments, **options)
            if _on and arguments and id(arguments[0]) not in _seen:
                _guarded(_take, arguments[0])
            return result

        wrapper.plumbline = True
        return wrapper

    @functools.wraps(plain)
    def hook(self):
        plain(self)
        if not hasattr(type(self).step, "plumbline"):
            type(self).step = watched(type(self).step)

    kind._hook_for_profile = hook


def _take(optimizer):
    """Called after a step of an optimizer that is not settled yet."""
    import weakref

    key = id(optimizer)
    if _package().take(optimizer):
        _seen[key] = weakref.ref(optimizer, lambda _: _seen.pop(key, None))


def _package():
    """Returns plumbline's module that watches. The package of this installation is used, unless the trainer has imported another one."""
    known = sys.modules.get("plumbline")
    if known is None:
        from importlib.util import module_from_spec, spec_from_file_location

        start = os.path.join(_PACKAGE, "__init__.py")
        spec = spec_from_file_location("plumbline", start, submodule_search_locations=[_PACKAGE])
        known = sys.modules["plumbline"] = module_from_spec(spec)
        try:
            spec.loader.exec_module(known)
        except BaseException:
            for name in [one for one in sys.modules if one == "plumbline" or one.startswith("plumbline.")]:
                del sys.modules[name]
            raise
    import importlib

    where = os.path.dirname(os.path.realpath(getattr(known, "__file__", None) or ""))
    if where != os.path.realpath(_PACKAGE):
        version = getattr(known, "__version__", "of unknown version")
        raise Refused("the trainer has imported its own plumbline %s from %s" % (version, where))
    return importlib.import_module("plumbline._attach.attached")


class Refused(Exception):
    """Why a process is not watched; printed as it is."""
