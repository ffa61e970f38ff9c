"""A collective that works in place: its sampled elements before and after it."""

import sys

from ._process_groups import describe_group
from ._tensors import Unsupported, local


ANNOUNCE_SECONDS = 0.2  # the longest wait before the first call of a site


def elements(tensor, indices):
    """Returns a copy of the elements at `indices` (a tensor, C order), on the tensor's own device."""
    flat = local(tensor).detach().reshape(-1)
    if indices.device != flat.device:
        indices = indices.to(flat.device)
    return flat.index_select(0, indices)


def as_indices(array):
    """Returns an array('q') as a torch tensor over the same memory."""
    torch = sys.modules["torch"]
    return torch.frombuffer(array, dtype=torch.int64)


class Nothing:
    """A context, and a handle, that does nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def remove(self):
        pass


NOTHING = Nothing()


class Reducing:
    """The context of `Run.reducing`."""

    def __init__(self, run, name, tensor, op, group, declared):
        self._run, self._name, self._tensor, self._op = run, name, tensor, op
        self._group, self._declared = group, declared
        self._indices = self._input = None

    def __enter__(self):
        try:
            if not hasattr(self._tensor, "numel"):
                kind = type(self._tensor).__name__
                raise Unsupported(f"expected a torch tensor, not {kind}")
            self._run._ranks.follow(self._run, softly=True)
            self._announce()
            sampled = self._run.sample_indices(self._name, local(self._tensor).numel(), self._op)
            if sampled is not None:
                self._indices = as_indices(sampled)
                self._input = elements(self._tensor, self._indices)
        except Exception as error:
            text = error if isinstance(error, Unsupported) else repr(error)
            self._tensor = None
            self._run._report_error(("reducing", repr(self._name)), f"reducing({self._name!r}): {text}")
        return self

    def __exit__(self, failed, *_):
        if failed is not None:
            # There is no result. The call is recorded without values, because it may show the cause.
            self._input = self._indices = None
        if self._tensor is not None and (failed is None or issubclass(failed, Exception)):
            self._observe()
        return False

    def _announce(self):
        """Records the call that this rank is about to make, if its site had no call of this size or dtype yet. If the
        ranks' calls differ, Gloo ends the process within the call, and NCCL blocks."""
        requested = (self._tensor.numel(), str(self._tensor.dtype))
        stated = self._run._stated
        if stated.get((self._name, self._op)) == requested:
            return
        stated[self._name, self._op] = requested
        facts = self._facts()
        # A call that is joined by its number would be recorded twice.
        if facts.get("variable_count") or facts.get("sequence") is not None or (facts.get("group_size") or 2) < 2:
            return
        self._run.observe_reduction(self._name, op=self._op, **facts)
        self._run.flush(ANNOUNCE_SECONDS)

    def _facts(self):
        known = describe_group(self._group) if not isinstance(self._group, str) else None
        facts = {"group": self._group} if known is None else {
            "group": known.name, "group_size": known.size, "group_rank": known.rank,
            "transport": known.transport}  # fmt: skip
        facts.update(wire_dtype=self._tensor.dtype, count=self._tensor.numel())
        facts.update(self._declared)
        return facts

    def _observe(self):
        try:
            output = None if self._input is None else elements(self._tensor, self._indices)
            self._run.observe_reduction(self._name, self._input, output, op=self._op,
                                        offsets=self._indices, **self._facts())  # fmt: skip
        except self._run._mistake:
            raise
        except Exception as error:
            self._run._report_error(("reducing", repr(self._name)), f"reducing({self._name!r}): {error!r}")
