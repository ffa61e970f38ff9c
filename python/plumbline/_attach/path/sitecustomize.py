"""Loaded at the start of each Python below `plumb run`, because its folder is the first of PYTHONPATH. Runs the sitecustomize that it
shadows, then installs the hook that waits for torch."""

import sys


def _shadowed(folders):
    """Runs the sitecustomize that the interpreter would have run without this folder. Its exceptions are those of the environment: the
    interpreter prints them."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("sitecustomize", folders)
    if spec is None or spec.loader is None:
        return
    module = type(sys)("sitecustomize")
    module.__file__, module.__spec__, module.__loader__ = spec.origin, spec, spec.loader
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _start():
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    folders = [path for path in sys.path if os.path.abspath(path or ".") != here]
    try:
        if sys.version_info >= (3, 8):
            sys.path.insert(0, here)
            import plumbline_attach

            plumbline_attach.install()
    except Exception as error:  # no error of this package may reach the trainer
        sys.stderr.write("plumbline: this Python is not watched: %r\n" % (error,))
    finally:
        sys.path[:] = folders
    _shadowed(folders)


_start()
