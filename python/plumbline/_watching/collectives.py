"""Sums over ranks that no communication hook shows: those of DeepSpeed, Megatron-core and FSDP, and all_reduce in the
trainer's own loop.

From the first backward pass of a step to its update, calls of the process group's methods go through this module. In
due steps it keeps some elements of the input and of the result. It sends nothing between ranks.
"""

import functools
import sys
from threading import get_ident
from time import thread_time_ns

from .. import _capture
from .._kinds import KIND_REDUCTION, KIND_TENSOR
from .._library import CAPTURING, NO_STEP
from .._process_groups import describe_group, world
from .._reducing import as_indices, elements
from .stages import OPTIMIZER, Weakly, take_place

_FEWEST = 64  # the fewest elements of a sum of gradients: a smaller sum is a norm or a count
_MOST = 64  # the most sums of one step and group that are kept
_UPDATES = 3  # updates without a sum, after which this module assumes that it cannot see any
_METHODS = ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter_single", "_reduce_scatter_base", "reduce_scatter_single_coalesced",
            "reduce_scatter_tensor_coalesced")  # fmt: skip
_OTHERS = ("broadcast", "allgather", "all_gather_single", "_allgather_base")  # only the call is counted, its tensors are not read


def _mixed(step):
    """Mixes the bits of a step number: the results for the multiples of a number are not multiples of a number."""
    return (step * 0x9E3779B1 & 0xFFFFFFFF) >> 16


def _listed(tensors):
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


def _is_large(tensors):
    """Returns whether it holds tensors that may be weights."""
    tensor = next(iter(_listed(tensors)), None)
    return hasattr(tensor, "is_floating_point") and tensor.is_floating_point() and tensor.numel() >= _FEWEST


def _sums_of(name, arguments, named):
    """Returns [(input, output)] and the options of one call of a process group's method."""
    given = [*arguments, *named.values()]
    if name.startswith(("reduce_scatter", "_reduce_scatter")):
        outputs, inputs, options = given[:3] if len(given) > 2 else (*given[:2], None)
        return list(zip(_listed(inputs), _listed(outputs))), options
    tensors = _listed(given[0])
    return [(tensor, tensor) for tensor in tensors], given[1] if len(given) > 1 else None


class _Sum:
    """One due call. In a reduce-scatter only the part of one rank is measured, in each step another one's."""

    __slots__ = ("layer", "op", "group", "count", "dtype", "first", "owner", "indices", "input", "output")

    def __init__(self, layer, op, group, before, after, number, root):
        self.layer, self.op, self.group, self.output = layer, op, group, after
        scattered = after.numel() != before.numel()
        self.count, self.dtype = after.numel(), before.dtype
        part = number % group.size if scattered else 0
        self.first = part * self.count
        self.owner = group.rank == part if scattered else root is None or group.rank == root
        self.indices = self.input = None

    def keep(self, before, indices):
        self.indices = indices
        self.input = elements(before.detach().reshape(-1)[self.first : self.first + self.count], indices)

    def observe(self, run):
        sampled = self.input is not None
        output = elements(self.output, self.indices) if sampled and self.owner else None
        run.observe_reduction(
            self.layer, self.input, output, op=self.op, offsets=self.indices if sampled else None, group=self.group.name,
            wire_dtype=self.dtype, count=self.count, group_size=self.group.size, group_rank=self.group.rank, transport=self.group.transport,
        )  # fmt: skip


class Sums:
    """The collectives of one watch."""

    def __init__(self, run, loop, prefix, paced, groups=None):
        """paced: a PacedSums. groups: the process groups that sum gradients; None: every group."""
        self._run, self._loop, self._prefix, self._paced, self._groups = run, loop, prefix, paced, groups
        self._counts, self._updates, self._missing = {}, 0, None
        self.seen = 0  # number of sums in the run so far
        self.others = 0  # calls outside of the part of a step in which gradients are summed
        self.watched = False

    def watch(self, missing):
        """Called if there are several processes. missing: (layer, op) of the site that is declared if no sum is seen."""
        distributed = sys.modules.get("torch.distributed")
        if self.watched or distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return
        if distributed.get_world_size() > 1:
            self.watched, self._missing = True, missing
            Collectives.add(self)

    def starts(self, group, name, arguments, named):
        """Returns the function to call when the result is complete, or None."""
        run, loop = self._run, self._loop
        if run._light is not None:  # nothing is due
            return None
        if name in _OTHERS:
            self.others += _is_large(arguments[-2] if len(arguments) > 1 else arguments[0] if arguments else None)
            return None
        if run._step >= CAPTURING or run._step == NO_STEP or not loop.backwards or loop.stages.stage == OPTIMIZER:
            self.others += any(_is_large(before) for before, _ in _sums_of(name, arguments, named)[0])
            return None
        if self._groups is not None and not any(group is one for one in self._groups):
            return None
        pairs, options = _sums_of(name, arguments, named)
        began = thread_time_ns()
        op = _capture._op_name(getattr(options, "reduceOp", options))
        root = getattr(options, "rootRank", None)
        due = [one for before, after in pairs if (one := self._due(group, before, after, op, root)) is not None]
        took = thread_time_ns() - began
        run._spent += took
        self._paced.spent += took if due else 0
        return functools.partial(self._ends, due) if due else None

    def _due(self, group, before, after, op, root):
        run = self._run
        if not before.is_floating_point() or after.numel() < _FEWEST:
            return None
        group = describe_group(group)
        number = self._counts.get(group.name, 0)
        self._counts[group.name] = number + 1
        self.seen += 1
        if number >= _MOST:
            return None
        layer = f"{self._prefix}gradients.{number}"
        site = run._site(KIND_REDUCTION, layer, op)
        if site is None or run._step < site.word[0] or not self._paced.measures():
            return None
        run._ranks.follow(run, softly=True)
        one = _Sum(layer, op, group, before, after, _mixed(run._step) + number, root)
        sampled = run._indices(site, one.count)
        if sampled is not None:
            one.keep(before, as_indices(sampled))
        return one

    def _ends(self, due):
        run, began = self._run, thread_time_ns()
        spent = run._spent
        try:
            for one in due:
                one.observe(run)
        except Exception as error:  # no error of this package may end the trainer's step
            run._warn_once(("watch", "sums"), f"watch: sums: {error!r}")
        took = thread_time_ns() - began
        run._spent = spent + took
        self._paced.spent += took

    def step_ends(self, updated):
        """Called in the open step at its end. Declares the missing site if no sum was seen for some updates."""
        self._counts.clear()
        if self._missing is None or not updated or self.seen:
            return
        self._updates += 1
        if self._updates == _UPDATES:
            layer, op = self._missing
            self._run._declare_site(KIND_TENSOR, layer, op)

    def remove(self):
        if self.watched:
            Collectives.remove(self)


class Collectives:
    """All reductions of the process, for the watches whose gradients they may be."""

    watches = Weakly()
    _undo, _inside = [], set()  # _inside: threads inside of a call; a call that makes other calls counts once

    @classmethod
    def add(cls, sums):
        cls.watches.add(sums)
        if not cls._undo:
            kinds = dict.fromkeys((type(world()), sys.modules["torch.distributed"].ProcessGroup))
            owners = dict.fromkeys(owner for kind in kinds for owner in kind.__mro__)
            for owner in owners:
                for name in (*_METHODS, *_OTHERS):
                    if name in vars(owner):
                        cls._take_place(owner, name)

    @classmethod
    def _take_place(cls, owner, name):
        plain = vars(owner)[name]
        try:
            cls._undo.append(take_place(owner, name, plain, cls._passing(name, plain)))
        except TypeError:  # in another torch version, the methods of this class cannot be replaced
            return

    @classmethod
    def _passing(cls, name, plain):
        def method(self, *arguments, **named):
            original, here = plain.__get__(self, type(self)), get_ident()
            if here in cls._inside or getattr(_capture._local, "capture", None) is not None:
                return original(*arguments, **named)
            cls._inside.add(here)
            try:
                ended = cls._starts(self, name, arguments, named)
                work = original(*arguments, **named)
            finally:
                cls._inside.discard(here)
            return work if ended is None or work is None else _capture._Work(work, ended)

        return method

    @classmethod
    def _starts(cls, group, name, arguments, named):
        for held in cls.watches.refs:
            sums = held()
            if sums is None:
                continue
            try:
                ended = sums.starts(group, name, arguments, named)
            except Exception as error:  # no error of this package may end the trainer's step
                sums._run._warn_once(("watch", "sums"), f"watch: sums: {error!r}")
                continue
            if ended is not None:
                return ended
        return None

    @classmethod
    def remove(cls, sums):
        cls.watches.discard(sums)
        if not cls.watches.refs:
            undo, cls._undo = cls._undo, []
            for one in undo:
                one()
