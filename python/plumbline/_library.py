"""Finds libplumbline.so and declares its calls to ctypes."""

import ctypes
import glob
import os

from ._kinds import NAMES

OK, NOT_DUE, DISABLED, DROPPED = 0, 1, 2, 3
INVALID_ARGUMENT, FAILED_PRECONDITION, UNAVAILABLE, DEADLINE_EXCEEDED = -1, -2, -3, -4

NEVER = 2**64 - 1
CAPTURING = 2**64 - 3  # the number of a run's step during a capture of a graph: every site is due
NO_STEP = 2**64 - 2  # the number of a run's step outside of steps: not below any due word except NEVER

_NAME = "libplumbline.so"


class LibraryMissing(RuntimeError):
    """libplumbline.so was not found or cannot be loaded."""


class OpenOptions(ctypes.Structure):
    """plumbline_open_options_t."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("role", ctypes.c_int32),
        ("run", ctypes.c_char_p),
        ("server", ctypes.c_char_p),
        ("record", ctypes.c_char_p),
        ("attempt", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("world_size", ctypes.c_int32),
        ("every", ctypes.c_uint32),
        ("budget", ctypes.c_double),
        ("spool", ctypes.c_char_p),
        ("spool_bytes", ctypes.c_uint64),
        ("caller", ctypes.c_char_p),
        ("redact", ctypes.c_int32),
        ("stop_on", ctypes.c_int32),
    ]


class Ending(ctypes.Structure):
    """plumbline_ending_t."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("how", ctypes.c_int32),
        ("type", ctypes.c_char_p),
        ("text", ctypes.c_char_p),
        ("where", ctypes.c_char_p),
        ("code", ctypes.c_int32),
        ("thread", ctypes.c_char_p),
    ]


class SiteHead(ctypes.Structure):
    """plumbline_site_t."""

    _fields_ = [("next_due", ctypes.c_uint64), ("step", ctypes.c_void_p)]


def _in_source_tree(package):
    """Returns libraries of build directories, newest first, if the package is in its source tree.

    A sanitizer's library cannot be loaded into a Python that was not started with the sanitizer.
    """
    root = os.path.dirname(os.path.dirname(package))
    if not os.path.exists(os.path.join(root, "agent", "facade", "CMakeLists.txt")):
        return []
    found = [p for p in glob.glob(os.path.join(root, "build", "*", "lib", _NAME))
             if p.split(os.sep)[-3] not in ("asan", "ubsan", "tsan")]  # fmt: skip
    return sorted(found, key=os.path.getmtime, reverse=True)


def _installed(package):
    try:
        from ._location import LIBRARY_DIRECTORY  # written by the build and the installation
    except ImportError:
        return []
    return [os.path.normpath(os.path.join(package, LIBRARY_DIRECTORY, _NAME))]


def _candidates():
    chosen = os.environ.get("PLUMBLINE_LIBRARY")
    if chosen:
        return [chosen]
    files = []
    for path in (os.path.abspath, os.path.realpath):  # the package's folder may be a link
        package = os.path.dirname(path(__file__))
        files += [os.path.join(package, _NAME), *_installed(package), *_in_source_tree(package)]
    files = [path for path in files if os.path.exists(path)]
    return files[:1] or [_NAME]  # if there is no such file, the loader searches for the name


def _declare(short, blocking):
    """Sets argument and result types. `short` keeps the interpreter lock, `blocking` releases it."""
    c = ctypes
    status = c.c_int32
    run = c.c_void_p
    signatures = {
        "plumbline_open": [c.POINTER(OpenOptions), c.POINTER(c.c_void_p)],
        "plumbline_set_rank": [run, c.c_int32, c.c_int32],
        "plumbline_site": [run, c.c_int32, c.c_char_p, c.c_char_p, c.POINTER(c.c_void_p)],
        "plumbline_site_at": [run, c.c_int32, c.c_char_p, c.c_char_p, c.c_char_p, c.c_uint32, c.POINTER(c.c_void_p)],
        "plumbline_step_begin": [run, c.c_int64],
        "plumbline_step_end": [run],
        "plumbline_capture_begin": [run, c.c_void_p],
        "plumbline_capture_end": [run],
        **{f"plumbline_observe_{name}": [c.c_void_p, c.c_void_p] for name in NAMES.values()},
        "plumbline_sample_indices": [c.c_void_p, c.c_uint64, c.c_void_p, c.c_uint32,
                                     c.POINTER(c.c_uint32)],
        "plumbline_scalar": [run, c.c_char_p, c.c_double],
        "plumbline_scalar_at": [run, c.c_char_p, c.c_double, c.c_char_p, c.c_uint32],
        "plumbline_charge": [run, c.c_uint64],
        "plumbline_next_look": [run, c.c_int64],
        "plumbline_look": [run, c.c_uint32],
        "plumbline_checksums": [c.c_void_p, c.c_void_p, c.c_uint32, c.c_void_p],
        "plumbline_square_sums": [c.c_void_p, c.c_void_p, c.c_uint32, c.c_void_p],
        "plumbline_moved": [c.c_void_p, c.c_void_p, c.c_void_p, c.c_uint32, c.c_void_p, c.c_void_p],
        "plumbline_together_begin": [run],
        "plumbline_together_end": [run],
        "plumbline_marks": [run, c.POINTER(c.c_void_p)],
        "plumbline_steps": [run, c.POINTER(c.c_char_p), c.c_uint32, c.POINTER(c.c_void_p)],
        "plumbline_span_begin": [run, c.c_char_p, c.c_char_p, c.POINTER(c.c_uint64)],
        "plumbline_span_end": [run, c.c_uint64],
        "plumbline_flush": [run, c.c_uint32],
        "plumbline_close": [run, c.c_uint32],
        "plumbline_note_ending": [run, c.POINTER(Ending)],
        "plumbline_stop_order": [run, c.c_void_p, c.c_uint32, c.POINTER(c.c_int32)],
        "plumbline_watch_sigterm": [],
        "plumbline_check_router": [c.c_void_p, c.c_void_p],
        "plumbline_fingerprint": [c.c_void_p, c.c_void_p],
    }
    for library in (short, blocking):
        for name, arguments in signatures.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = status
        library.plumbline_last_error.restype = c.c_char_p
        library.plumbline_status_name.argtypes = [status]
        library.plumbline_status_name.restype = c.c_char_p
        library.plumbline_version.restype = c.c_char_p


class Library:
    """The loaded library: `short` for calls that return at once, `blocking` for those that wait."""

    def __init__(self, path):
        self.path = path
        self.short = getattr(ctypes, "PyDLL", ctypes.CDLL)(path)  # PyPy has only one kind
        self.blocking = ctypes.CDLL(path)
        _declare(self.short, self.blocking)

    def last_error(self):
        return self.short.plumbline_last_error().decode("utf-8", "replace")

    def status_name(self, status):
        return self.short.plumbline_status_name(status).decode()


_loaded = None


def load():
    """Returns the library, loaded once per process. Raises LibraryMissing, whose text names the places that were searched."""
    global _loaded
    if _loaded is None:
        path = _candidates()[0]
        try:
            _loaded = Library(path)
        except (OSError, AttributeError) as error:
            raise LibraryMissing(
                f"{_NAME} cannot be loaded ({error}); expected it next to the package, in the build "
                "tree, or at the path in PLUMBLINE_LIBRARY"
            ) from error
    return _loaded


def version():
    """Returns the version of libplumbline.so. Raises LibraryMissing."""
    return load().short.plumbline_version().decode()
