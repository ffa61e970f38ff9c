"""Mistakes of the trainer's calls: one warning each at the trainer's own line, or an exception if the run is strict."""

import os
import sys
import sysconfig
import warnings

from ._library import UNAVAILABLE

_HERE = os.path.dirname(__file__)  # and below
_MOST_FILE = 256  # bytes of a file's name: its end is kept
LIBRARIES = tuple({os.path.join(path, "") for name, path in sysconfig.get_paths().items()
                   if name in ("stdlib", "platstdlib", "purelib", "platlib")}) + ("<frozen", "/usr/lib/python3/")  # fmt: skip

as_lines = False  # the trainer has no line of ours (plumb run): a warning is one line, without a place in its code


class PlumblineError(RuntimeError):
    """A call that could not do its work; raised only by runs opened with strict=True."""


def callers_frame():
    """Returns the innermost frame outside of the package, and the number of frames inside of it."""
    frame, level = sys._getframe(1), 0
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE + os.sep):
        frame, level = frame.f_back, level + 1
    return frame, level


def trainers_line():
    """Returns the file, encoded, and the line of the innermost frame outside of libraries and of this package. If there is none: of
    the innermost frame outside of this package; on a thread without one, as autograd's for a device, an empty file."""
    frame, _ = callers_frame()
    outside = frame
    while outside is not None and outside.f_code.co_filename.startswith((*LIBRARIES, _HERE + os.sep)):
        outside = outside.f_back
    frame = outside or frame
    if frame.f_code.co_filename.startswith(_HERE + os.sep):
        return b"", 0
    return frame.f_code.co_filename.encode("utf-8", "replace")[-_MOST_FILE:], frame.f_lineno or 0


def _is_ignored(frame):
    """Returns whether the trainer's filters suppress every warning of ours at that place. Warnings about what is not
    watched must be visible."""
    module = frame.f_globals.get("__name__", "")
    for action, message, category, where, line in warnings.filters:
        fits = issubclass(RuntimeWarning, category) and (where is None or where.match(module))
        if fits and message is None and line in (0, frame.f_lineno):
            return action == "ignore"
    return False


def warn(text):
    """Prints one warning at the trainer's own line, which never becomes an exception in its step."""
    frame, level = callers_frame()
    if as_lines or _is_ignored(frame):
        print(f"plumbline: {text}", file=sys.stderr)
        return
    try:
        warnings.warn(f"plumbline: {text}", RuntimeWarning, stacklevel=level + 1)
    except RuntimeWarning:  # the filter "error"
        print(f"plumbline: {text}", file=sys.stderr)


class Mistakes:
    """Base class of Run."""

    _mistake = PlumblineError

    def _report_error(self, key, text):
        if self._strict:
            raise PlumblineError(text)
        self._warn_once(key, text)

    def _warn_once(self, key, text):
        if key not in self._reported:
            self._reported.add(key)
            warn(f"{text} (printed once; the trainer continues)")

    def _check(self, key, status):
        """Reports a negative status. If the library is unavailable, the library itself reports that."""
        if status < 0 and (status != UNAVAILABLE or self._strict):
            self._report_error((key, status), self._library.last_error())
        return status
