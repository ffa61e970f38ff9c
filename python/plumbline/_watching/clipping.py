"""torch's clip by norm: reads the gradients' norm before the clip, which the clip computes anyway."""

import math
import sys

from .._compiled import is_compiling
from .._screen import total_norm
from .._tensors import local
from .stages import Weakly, take_place

# From 2.6 on torch's clip_grad_norm_ calls two functions that it looks up at call time; callers may have imported clip_grad_norm_ long before.
_HOMES = ("torch.nn.utils.clip_grad", "torch.nn.utils")
_OTHERS = ("deepspeed.runtime.engine",)  # classes with a clip_grad_norm_ of their own
_NORMS, _CLIPS = ("_get_total_norm", "get_total_norm"), ("_clip_grads_with_norm_", "clip_grads_with_norm_")


def _replicated(total):
    """For a DTensor returns the norm over all ranks. The clip would compute this sum next; it is computed here, once."""
    if local(total) is total or all(one.is_replicate() for one in total.placements):
        return total
    torch = sys.modules["torch"]
    with torch.no_grad():
        return total.redistribute(placements=[torch.distributed.tensor.Replicate()] * len(total.placements))


class Clip:
    """One call of a clip. `parameters`: those that the call got. `total`: a tensor, the 2-norm of their gradients
    before the call."""

    __slots__ = ("parameters", "total", "most", "_value")

    def __init__(self, parameters, total, most):
        self.parameters, self.total, self.most, self._value = parameters, total, float(most), None

    @property
    def on_host(self):
        return not hasattr(self.total, "device") or self.total.device.type == "cpu"

    def value(self):
        if self._value is None:
            self._value = float(self.total)
        return self._value

    def factor(self):
        """Returns the factor by which the gradients were made smaller."""
        return min(1.0, self.most / (self.value() + 1e-6))


class Clipping:
    """All clips of the process, for the watches that own the parameters."""

    watches = Weakly()
    _undo, _norm = [], None

    @classmethod
    def add(cls, watch):
        cls.watches.add(watch)
        if cls._undo:
            return
        homes = [sys.modules[home] for home in _HOMES]
        if hasattr(homes[0], _CLIPS[0]):
            for names, make in ((_NORMS, cls._of_norm), (_CLIPS, cls._of_clip)):
                plain = getattr(homes[0], names[0])
                cls._take_place(homes, names, plain, make(plain))
        else:
            plain = homes[0].clip_grad_norm_
            cls._take_place(homes, ("clip_grad_norm_",), plain, cls._of_whole(plain))
        for home in filter(None, map(sys.modules.get, _OTHERS)):
            plain = getattr(home, "clip_grad_norm_", None)
            if plain is not None and plain is not homes[0].clip_grad_norm_:
                cls._take_place([home], ("clip_grad_norm_",), plain, cls._of_whole(plain))

    @classmethod
    def _take_place(cls, homes, names, plain, ours):
        for home in homes:
            cls._undo += [take_place(home, name, plain, ours) for name in names if home.__dict__.get(name) is plain]

    @classmethod
    def remove(cls, watch):
        cls.watches.discard(watch)
        if not cls.watches.refs:
            undo, cls._undo = cls._undo, []
            for one in undo:
                one()

    @classmethod
    def _of_norm(cls, plain):
        compiling = is_compiling()

        def get_total_norm(tensors, norm_type=2.0, *arguments, **options):
            norm = plain(tensors, norm_type, *arguments, **options)
            if not compiling():
                cls._norm = norm if norm_type == 2 else None
            return norm

        return get_total_norm

    @classmethod
    def _of_clip(cls, plain):
        compiling = is_compiling()

        def clip_grads_with_norm_(parameters, max_norm, total_norm, *arguments, **options):
            if not compiling():
                known, total_norm = total_norm is cls._norm, _replicated(total_norm)
                parameters = cls._report(parameters, max_norm, local(total_norm), known)
            return plain(parameters, max_norm, total_norm, *arguments, **options)

        return clip_grads_with_norm_

    @classmethod
    def _of_whole(cls, plain):
        def clip_grad_norm_(parameters, max_norm, norm_type=2.0, *arguments, **options):
            parameters = cls._listed(parameters)
            norm = plain(parameters, max_norm, norm_type, *arguments, **options)
            cls._report(parameters, max_norm, norm, norm_type == 2)
            return norm

        return clip_grad_norm_

    @staticmethod
    def _listed(parameters):
        return [parameters] if hasattr(parameters, "grad") else list(parameters)

    @classmethod
    def _report(cls, parameters, max_norm, total, known):
        parameters = cls._listed(parameters)
        cls._norm = None
        for held in cls.watches.refs if known and type(total).__name__ == "Tensor" else ():
            watch = held()
            if watch is not None:
                watch._guarded(watch.clip, parameters, total, max_norm)
        return parameters


class Before:
    """The norm of one watch's gradients before they were clipped."""

    def __init__(self, parameters):
        """parameters: {name: parameter}."""
        self._parameters = parameters
        self._covered = {}  # (optimizer, how many, the first, the last) of a clip -> whether it clips only the gradients of this optimizer
        self._trusted = False  # whether the optimizer got the clipped gradients in the step that was screened last

    def add(self, pairs):
        """Adds (name, parameter) pairs that appeared later."""
        self._parameters.update(pairs)
        self._covered.clear()

    def _covers(self, clip, optimizer, part):
        """Returns whether the clip got exactly those parameters of `part`, (name, parameter) pairs, that have a
        gradient."""
        given = clip.parameters
        key = (optimizer, len(given), id(given[0]), id(given[-1])) if given else None
        if key is not None and key not in self._covered:
            ids, mine = {id(p) for p in given}, {id(p) for _, p in part if p.grad is not None}
            self._covered[key] = mine <= ids and all(id(p) in mine for p in given if p.grad is not None)
        return self._covered.get(key, False)

    def known(self, clips, optimizer, part):
        """Returns the clip that has the norm of the optimizer's gradients, in a step that is not screened; or None."""
        fits = self._trusted and len(clips) == 1 and clips[0].on_host and self._covers(clips[0], optimizer, part)
        return clips[0] if fits else None

    def total(self, clips, optimizer, part, names, each, shards):
        """Returns the norm before the clip of gradients with the norms `each`, as the optimizer gets them. None: there was no clip, or it clipped
        other gradients."""
        if not clips:
            return None
        after = total_norm(each)
        covers = len(clips) == 1 and self._covers(clips[0], optimizer, part)
        expected = min(clips[0].value(), clips[0].most)
        # A clip before the unscaling leaves another norm. If parameters are shards, the total is of all ranks.
        self._trusted = covers and (bool(shards) or not math.isfinite(expected) or abs(after - expected) <= 1e-2 * expected)
        if covers:
            return clips[0].value() if self._trusted else None
        factors = {}
        for clip in clips:
            for p in clip.parameters:
                factors[id(p)] = factors.get(id(p), 1.0) * clip.factor()
        each = [norm / (factors.get(id(self._parameters[name])) or 1.0) for name, norm in zip(names, each)]
        return total_norm(each)
