"""Opening a run: makes from init's arguments a Run, or one that does nothing."""

import ctypes
import os

from . import _endings, _library
from ._attach import attached
from ._library import DISABLED, LibraryMissing, OpenOptions
from ._mistakes import PlumblineError, callers_frame, warn
from ._no_run import NoRun
from ._ranks import Ranks
from ._run import Run
from ._stopping import checked, stopping
from ._watching import ddp

_ROLES = {"trainer": 1, "rollout": 2}


def _check_every(every):
    """Returns the interval; 0 if `every` is None: the cadence decides. Refuses 0, which is not an interval, and
    fractions, which would be cut silently."""
    if every is None:
        return 0
    if isinstance(every, bool) or not hasattr(every, "__index__") or not 0 < int(every) < 2**31:
        raise ValueError(f"every is {every!r}; expected an integer of at least 1 (1: each step is observed), or "
                         "None (automatic)")  # fmt: skip
    return int(every)


def _number(name, value, low, most=2**31 - 1):
    """Returns the number; -1 if the value is None: the library reads the environment. Refuses a value out of range: the
    library would get another number."""
    if value is None:
        return -1
    if isinstance(value, bool) or not hasattr(value, "__index__") or not low <= int(value) <= most:
        raise ValueError(f"{name} is {value!r}; expected an integer from {low} to {most}, or None")
    return int(value)


def _share(budget):
    """Returns the given budget. If it is None, returns the environment's; if the environment has none either, returns
    None: the default."""
    text = os.environ.get("PLUMBLINE_BUDGET", "")
    if budget is not None or not text:
        return budget
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"PLUMBLINE_BUDGET={text}: expected a number above 0, at most 1: the allowed share of the step time")
    return share


def _flag(name, value):
    """Returns 1 for True, else 0. None: the environment decides. Refuses a string, because every non-empty string is
    true."""
    if value not in (None, True, False):
        raise ValueError(f"{name} is {value!r}; expected True, False or None")
    return 1 if value else 0


def _check_keywords(unknown):
    for name in unknown:
        import difflib
        import inspect

        known = [p for p in inspect.signature(init).parameters if p != "unknown"]
        near = difflib.get_close_matches(name, known, 1)
        meant = f"; is {near[0]!r} meant?" if near else f"; it takes {', '.join(known)}"
        raise TypeError(f"there is no keyword {name!r}{meant}")


def _caller():
    """Returns the trainer's line, for errors that are found only later: "train.py:12"."""
    frame = callers_frame()[0]
    where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    return where.encode("utf-8", "replace")[:256]


def _ranks(rank, world_size):
    """Checks the value, because ctypes would cut a value that does not fit."""
    _number("rank", rank, 0)
    _number("world_size", world_size, 1)
    return Ranks(rank, world_size)


def _options(run, server, record, ranks, attempt, role, every, budget, spool, spool_bytes, redact, stop_on):
    def text(value):
        encoded = None if value is None else os.fspath(value).encode()
        if encoded and b"\0" in encoded:  # a C string would end at this byte, and two runs would have one name
            raise ValueError(f"{value!r} holds a NUL character; expected a name without")
        return encoded

    if role not in _ROLES:
        raise ValueError(f"role is {role!r}; expected one of {', '.join(map(repr, _ROLES))}")

    rank, world_size = ranks.open_with()
    return OpenOptions(
        ctypes.sizeof(OpenOptions), _ROLES[role], text(run), text(server), text(record),
        _number("attempt", attempt, 0), _number("rank", rank, 0), _number("world_size", world_size, 1), _check_every(every),
        budget or 0.0, text(spool), 0 if spool_bytes is None else _number("spool_bytes", spool_bytes, 1, 2**63 - 1),
        _caller(), _flag("redact", redact), stop_on,
    )  # fmt: skip


def _forked():
    """Returns whether the run is disabled although the trainer did not ask for it. The library has printed the reason."""
    return os.environ.get("PLUMBLINE_DISABLE", "") in ("", "0")


def _refused(strict, text):
    if strict:
        raise PlumblineError(text)
    warn(f"{text}. Nothing is observed; the trainer continues.")
    return NoRun(refused=True)


def init(run=None, server=None, record=None, *, rank=None, world_size=None, attempt=None,
         role="trainer", every=None, budget=None, spool=None, spool_bytes=None, redact=None,
         stop_on=None, strict=False, **unknown):  # fmt: skip
    """Opens a run and returns it.

    run: its name. server: "host:port" of plumbd. record: a directory for run records. Give one or both; they may also
    come from PLUMBLINE_RUN, PLUMBLINE_SERVER, PLUMBLINE_RECORD. rank and world_size: from torch.distributed once
    init_process_group was called (before the first step is early enough), else from RANK and WORLD_SIZE, else SLURM's,
    else Open MPI's variables, else 0 and 1. attempt: how often the run was restarted before (else from torchrun).
    every: observe at most each n-th step (a site backs off further to keep its traffic budget). budget: share of the
    trainer's CPU time that may be spent (PLUMBLINE_BUDGET; 0.01). With 0.01 a run of a minute or less has few
    measurements; 1 takes all of them. spool: a directory for evidence that the server has not acknowledged
    (PLUMBLINE_SPOOL; with both server and record, RECORD/spool; "off": none): it survives this process, and the next
    one of this rank, or `plumb spool send`, delivers it. spool_bytes: its largest size (1 GiB). redact=True (or
    PLUMBLINE_REDACT=1): token and sequence ids leave this process as keyed hashes, under PLUMBLINE_REDACT_KEY, else a
    key from the access token, else a random one of this process; ids of two processes are equal only under the same
    key.

    stop_on: "error" or "warning" (PLUMBLINE_STOP_ON): at the first finding of that level run.should_stop is True, and a callback of
    plumbline.transformers or plumbline.lightning ends the training. If the loop of a watched optimizer never reads run.should_stop,
    plumbline.TrainingStopped (a SystemExit of status 1) is raised after its step. With a server the server judges, else this process
    judges what it records. A false finding of that level ends a healthy training: docs/attach.md has the rate.

    The goodbye of the process contains how it ends: by an uncaught exception, a status of sys.exit, or SIGTERM if that
    has its default action. The trainer's own hooks and handlers run as before.

    In a child that was forked after a run was opened nothing can be observed, and a warning is printed: start processes
    by spawn or forkserver, or open the first run only in the children.

    A mistake warns once, and the trainer gets a run that does nothing; strict=True raises PlumblineError here and in
    every later call. A mistake that is found only when something is recorded (a directory that cannot be written)
    raises in the first call that records.
    """
    attached.code_opens()
    try:
        library = _library.load()
    except LibraryMissing as error:
        return _refused(strict, str(error))
    handle = ctypes.c_void_p()
    try:
        _check_keywords(unknown)
        stop_on = stop_on or os.environ.get("PLUMBLINE_STOP_ON") or None
        stop_level = checked(stop_on)
        ranks, budget = _ranks(rank, world_size), _share(budget)
        options = _options(run, server, record, ranks, attempt, role, every, budget, spool, spool_bytes,
                           redact, stop_level)
    except (ValueError, TypeError) as error:
        return _refused(strict, f"init: {error}")
    status = library.short.plumbline_open(ctypes.byref(options), ctypes.byref(handle))
    if status < 0:
        return _refused(strict, library.last_error())
    if status == DISABLED:
        if strict and _forked():
            raise PlumblineError(library.last_error())
        return NoRun(refused=_forked())
    opened = Run(library, handle.value, strict, ranks, every, budget)
    opened._redacts = bool(options.redact) or os.environ.get("PLUMBLINE_REDACT", "") not in ("", "0")
    opened._stopping = stopping(stop_on, library, handle.value, f"{run}/{attempt or 0}")
    ranks.report(opened)
    _endings.watch(opened)
    ddp.prepare()
    return opened
