"""The end of the process: the report that its runs send with their goodbye.

sys.excepthook and threading.excepthook report uncaught exceptions, sys.exit a status other than 0. The functions that
were installed before are called, once, with the same effect; nothing here may raise. libplumbline handles SIGTERM
(plumbline_watch_sigterm), if the signal has its default action.
"""

import atexit
import os
import sys
import threading

from ._mistakes import LIBRARIES

EXCEPTION, EXIT, SIGNAL, INTERRUPTED, UNWINDING = 1, 2, 3, 4, 5

_HERE = os.path.dirname(__file__)
# These exceptions end a loop, not a process.
_NO_ERRORS = (GeneratorExit, StopIteration, StopAsyncIteration)

_runs = []  # open runs
_pid = None  # the process that installed the hooks
_status = None  # (status, exception or None) with which the process exits, if it is known


# ---- descriptions of exceptions ------------------------------------------------------------------


def _where(trace):
    """Returns "train.py:57 in forward": the innermost line outside of libraries, else the innermost."""
    found = last = None
    while trace is not None:
        code = trace.tb_frame.f_code
        last = (code, trace.tb_lineno)
        name = code.co_filename
        if not name.startswith(_HERE + os.sep) and not name.startswith(LIBRARIES):
            found = last
        trace = trace.tb_next
    if last is None:
        return None
    code, line = found or last
    return f"{os.path.basename(code.co_filename)}:{line} in {code.co_name}"


def _text(value):
    try:
        return str(value)[:512]
    except Exception:  # str() of an exception may fail
        return ""


def _described(value):
    """Returns type, text, place."""
    return type(value).__name__, _text(value), _where(value.__traceback__)


def _note(run, how, value):
    if isinstance(value, KeyboardInterrupt):
        how = INTERRUPTED
    run._note_ending(how, *_described(value))


def _number(status):
    """Returns the status that sys.exit's argument becomes."""
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1


def _note_exit(run, status, cause):
    run._note_ending(EXIT, *(_described(cause) if cause is not None else ()), code=status)


# ---- hooks ---------------------------------------------------------------------------------------


def _ours():
    return _runs and os.getpid() == _pid


def _interactive():
    return sys.flags.interactive or hasattr(sys, "ps1")


def _uncaught(value):
    """Called when the main thread is over: sends the goodbye now, because other threads may delay the exit."""
    if not _ours() or value is None or _interactive() or isinstance(value, SystemExit):
        return
    for run in list(_runs):
        _note(run, EXCEPTION, value)
        run._close()


def _uncaught_in_thread(arguments):
    value = arguments.exc_value
    if not _ours() or value is None or isinstance(value, SystemExit):
        return
    for run in list(_runs):
        if run._broken == threading.get_ident():  # this thread was the training thread
            _note(run, EXCEPTION, value)
        else:
            kind, text, where = _described(value)
            run._note_ending(0, thread=f"{kind}: {text}, at {where}")


def _ends_a_child(frame):
    """Returns whether the frame is the one of multiprocessing in which a child's exception ends."""
    return frame.f_code.co_name == "_bootstrap" and "multiprocessing" in frame.f_code.co_filename


class _LastSeen:
    """An attribute of a SystemExit, deleted together with the exception. If no frame is left at that time, no code
    caught the exception."""

    __slots__ = ("status", "cause")

    def __init__(self, status, cause):
        self.status = status
        self.cause = cause

    def __del__(self):
        global _status
        try:
            beneath = sys._getframe().f_back
            over = beneath is None or _ends_a_child(beneath)
            if over and threading.current_thread() is threading.main_thread():
                _status = (self.status, self.cause)
        except Exception:
            pass


def _error_in_hand(value):
    """Returns the exception that is being handled, if there is one."""
    return value if isinstance(value, Exception) and not isinstance(value, _NO_ERRORS) else None


def _install():
    global _pid
    if _pid == os.getpid():
        return
    first, _pid = _pid is None, os.getpid()
    if not first:
        _runs.clear()  # a forked child has inherited the hooks, but the runs belong to its parent
        return

    before, before_in_threads, exits = sys.excepthook, threading.excepthook, sys.exit

    def excepthook(kind, value, trace):
        try:
            if value is not None and value.__traceback__ is None:
                value = value.with_traceback(trace)
            _uncaught(value)
        except Exception:
            pass
        before(kind, value, trace)

    def thread_excepthook(arguments, /):
        try:
            _uncaught_in_thread(arguments)
        except Exception:
            pass
        before_in_threads(arguments)

    def exit(status=None, /):
        try:
            exits(status)
        except SystemExit as error:
            number = _number(status)
            if number != 0:
                error._plumbline = _LastSeen(number, _error_in_hand(error.__context__))
            raise

    exit.__doc__ = exits.__doc__
    sys.excepthook, threading.excepthook, sys.exit = excepthook, thread_excepthook, exit


# ---- runs ----------------------------------------------------------------------------------------


def watch(run):
    """Registers an open run, so that it sends its goodbye when the process ends, if not earlier."""
    _install()
    if not _runs:
        atexit.register(_at_exit)
    _runs.append(run)
    run._short.plumbline_watch_sigterm()  # the library refuses if the trainer has its own handler
    _finish_with_child(run)


def closed(run):
    if run in _runs:
        _runs.remove(run)
    if not _runs:
        atexit.unregister(_at_exit)


def closing(run, value):
    """Records how the process ends. `value`: the exception that is raised or handled while the run is closed."""
    if run not in _runs or value is None or isinstance(value, _NO_ERRORS):
        return
    try:
        if isinstance(value, SystemExit):
            seen = getattr(value, "_plumbline", None)
            if seen is not None:
                _note_exit(run, seen.status, seen.cause)
        else:
            _note(run, UNWINDING, value)
    except Exception:
        pass


def _of_main(trace):
    """Returns whether the exception left the program, and not only a part that a host ran."""
    if trace is None:
        return False
    frame = trace.tb_frame
    return (frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__"
            or "runpy" in frame.f_code.co_filename)  # fmt: skip


def _at_exit():
    if os.getpid() != _pid:
        return
    for run in list(_runs):
        try:
            last = getattr(sys, "last_value", None)
            # If another hook replaced ours, the interpreter has kept the exception that the hook got.
            if last is not None and not _interactive() and _of_main(last.__traceback__):
                _note(run, EXCEPTION, last)
            elif _status is not None:
                _note_exit(run, *_status)
        except Exception:
            pass
        run._close()


def _finish_with_child(run):
    """Registers the goodbye of a process of multiprocessing, which ends without the interpreter's exit and prints its
    exception itself."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None or multiprocessing.parent_process() is None:
        return

    def finish():
        if run not in _runs or os.getpid() != _pid:
            return
        try:
            value = sys.exc_info()[1]
            if isinstance(value, SystemExit):
                closing(run, value)
            elif value is not None:
                _note(run, EXCEPTION, value)
            elif _status is not None:
                _note_exit(run, *_status)
        except Exception:
            pass
        run._close()

    from multiprocessing import util

    _hear_child()
    util.Finalize(None, finish, exitpriority=100)


def _hear_child():
    """Records the exception of a child when the child prints it. From Python 3.13 on, finalizers run too late: the
    exception no longer exists."""
    import functools
    import traceback

    plain = traceback.print_exc
    if hasattr(plain, "plumbline"):
        return

    @functools.wraps(plain)
    def print_exc(*arguments, **options):
        try:
            value = sys.exc_info()[1]
            if value is not None and _ours() and _ends_a_child(sys._getframe(1)):
                for run in list(_runs):
                    _note(run, EXCEPTION, value)
        except Exception:
            pass
        return plain(*arguments, **options)

    print_exc.plumbline = True
    traceback.print_exc = print_exc
