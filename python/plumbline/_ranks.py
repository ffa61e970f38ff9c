"""Finds the rank of this process: from the arguments of init, else from torch's process group, else from the
launcher's environment.

Never imports torch: a process that has a process group has imported it. If a group is set up after init, its rank is
used as long as nothing was recorded; later only a warning is possible.
"""

import os
import sys

from ._kinds import KIND_TENSOR
from ._library import FAILED_PRECONDITION, OK

# Parses a number as the library does.
_LAUNCHERS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))


def of_process_group():
    """Returns (rank, size) of torch's default process group; None if there is none."""
    dist = sys.modules.get("torch.distributed")
    try:
        if dist is None or not dist.is_available() or not dist.is_initialized():
            return None
        rank, size = int(dist.get_rank()), int(dist.get_world_size())
    except Exception:  # torch is partly imported, or being unloaded
        return None
    return (rank, size) if 0 <= rank < size else None


def of_launcher():
    """Returns ((rank, size), names of the variables); (None, None) if none are set, or none that the library accepts."""
    for names in _LAUNCHERS:
        texts = [os.environ.get(name) for name in names]
        if all(texts):
            try:
                return (int(texts[0]), int(texts[1])), names
            except ValueError:  # the library reports the malformed number
                return None, None
    return None, None


def _words(ranks):
    return f"rank {ranks[0]} of {ranks[1]}"


class Ranks:
    """The ranks of one run. `given`: the arguments of init; None: not given."""

    def __init__(self, rank, world_size):
        self.given = (rank, world_size)
        self.taken = self._resolved(of_process_group())

    def _resolved(self, group):
        base = group or of_launcher()[0] or (0, 1)
        return tuple(one if given is None else given for given, one in zip(self.given, base))

    def open_with(self):
        """Returns rank and world_size for the library; None: it reads the environment."""
        return self.taken if of_process_group() else self.given

    def contradiction(self):
        """Returns a text if the process group contradicts init's arguments or the environment; else None."""
        group = of_process_group()
        if group is None:
            return None
        if self._resolved(group) != group:
            given = ", ".join(f"{name}={value}" for name, value in zip(("rank", "world_size"), self.given) if value is not None)
            return (f"init({given}): torch.distributed lists this process as {_words(group)}. It is recorded as "
                    f"{_words(self.taken)}, the arguments of init; if two processes have the same rank, comparisons of ranks are wrong")  # fmt: skip
        launcher, names = of_launcher()
        # If one task per node spawns its ranks itself, this is no contradiction.
        if None in self.given and launcher is not None and launcher != group and (names[0] == "RANK" or launcher[1] == group[1]):
            return (f"{' and '.join(names)} state {_words(launcher)}, torch.distributed states {_words(group)}: "
                    f"this process is recorded as {_words(group)}")  # fmt: skip
        return None

    def report(self, run):
        text = self.contradiction()
        if text is not None:
            run._warn_once("ranks-given", text)

    def follow(self, run, softly=False):
        """Called because the process group may be set up after init. Raises only what run._report_error raises."""
        group = of_process_group()
        if group is None:
            return
        self.report(run)
        if self._resolved(group) == self.taken:
            return
        now = self._resolved(group)
        status = run._short.plumbline_set_rank(run._handle, *now)
        if status == OK:
            self.taken = now
        elif status == FAILED_PRECONDITION:
            self._too_late(run, now, softly)

    def _too_late(self, run, now, softly):
        text = (f"this process is {_words(now)}, according to torch.distributed, but was recorded as {_words(self.taken)} since its "
                "first step, and keeps this rank: it is not compared with replicas and sums of other ranks. Expected "
                "plumbline.init, or its first step, after init_process_group, or init(rank=..., world_size=...)")  # fmt: skip
        self.taken = now  # so this is reported once
        # Declares a site, so that the audit reports the rank too, not only a log line.
        run._declare_site(KIND_TENSOR, f"{_words(now)} of torch.distributed",
                          "unhooked: call plumbline.init after init_process_group, or pass rank= and world_size=")  # fmt: skip
        (run._warn_once if softly else run._report_error)("ranks", text)
