"""The weights of a watched model: their checksum, their values after an update, and the values that a forward pass
used."""

from .._kinds import KIND_TENSOR
from .._library import CAPTURING, NO_STEP
from .._process_groups import describe_group
from .._screen import Checksums, combined, look
from .._shards import named_parameters, part
from .._tensors import local

CHECKSUM = "weights_checksum"  # the series of weights that all ranks hold copies of


class Weights:
    """The weights of one watch. `replicas` names the ranks that hold copies of them; None if no other rank does."""

    def __init__(self, run, model, prefix, copies, ddp, shards):
        """copies: the result of copies_of. shards: the names of parameters that are split over ranks."""
        self._run, self._model, self._prefix, self._shards = run, model, prefix, shards
        self.replicas, self._ignored = (None, ()) if copies is None else ("world", copies.ignored)
        self._copies = [(prefix + name, part(p)) for name, p in named_parameters(model) if name not in self._ignored]
        self._own = [(prefix + name, p) for name, p in named_parameters(model) if name in self._ignored and ddp is None]
        self.names = [name for name, _ in self._copies]
        self.checksums = Checksums(run._library.short, [p for _, p in self._copies])
        self._series = f"{CHECKSUM}{prefix and '.' + prefix[:-1]}"
        if copies is not None:
            group = describe_group(copies.group).name
            if group:  # the ranks of other groups hold other weights
                self.replicas, self._series = f"group {group}", f"{self._series}.{group}"
        self.in_world = copies is None or self._series == CHECKSUM  # whether light steps have a series for its checksum
        self._used_step = NO_STEP  # the last step whose weights were observed before their update

    def checksum(self, sums, poisoned):
        """Returns one checksum of the weights that ranks hold copies of, or None. sums: the result of `checksums`."""
        return combined(sums) if self.replicas and not poisoned else None

    def record_checksum(self, sums, poisoned):
        one = self.checksum(sums, poisoned)
        if one is not None:
            self._run._own_scalar(self._series, one)

    def observe_used(self, named, updates):
        """Observes the weights and the moments before their update, as the forward pass used them, to find whether the NaN of the step came from a
        weight.

        Uses a role of its own, because other observations of weights are made after the update.
        """
        run = self._run
        if self._used_step == run._step or run._step >= CAPTURING:
            return
        self._used_step = run._step
        named = [(name, p) for name, p in named if p.is_floating_point() and local(p).numel()]
        for name, _ in named:
            run._site(KIND_TENSOR, name, "parameter")
        look(run, "those sites too")
        with run.together():
            for name, parameter in named:
                run._observe_state(name, parameter, "parameter")
            for one in updates:  # after the weights: a value that is in both was in the weights
                one.observe_moments()

    def observe(self, chosen):
        """Observes the weights after an update. `chosen`: names of those that are due; None: all."""
        if chosen is None and not self._ignored and not self._shards and not self._prefix:
            self._run.observe_parameters(self._model, replicas=self.replicas)
            return
        with self._run.together():
            for name, parameter in self._copies:
                if chosen is not None and name not in chosen:
                    continue
                if name in self._shards and not local(parameter).numel():
                    continue
                self._run.observe_tensor(name, parameter, role="weight", replicas=self.replicas)
            for name, parameter in self._own:
                self._run.observe_tensor(name, parameter, role="weight")
