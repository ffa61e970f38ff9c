"""torch's loss scalers: the loss from which a scaled one was computed, and skipped steps. Frameworks hold the scalers
where a watch cannot see them."""

import sys
import weakref

from .stages import Weakly, take_place

_MOST = 64  # the most scaled losses of a step that are kept
_HOMES = ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler", "torch.distributed.fsdp.sharded_grad_scaler")


def _kinds():
    """Returns the classes of scalers that have their own scale()."""
    kinds, waiting = [], [getattr(sys.modules.get(home), "GradScaler", None) for home in _HOMES]
    while waiting:
        kind = waiting.pop()
        if kind is not None and kind not in kinds:
            kinds.append(kind)
            waiting.extend(kind.__subclasses__())
    return kinds


class Scaling:
    """Observes all scalers of the process, for the loops that use them."""

    loops = Weakly()
    _made = []  # (weak reference to a scaled loss, the loss before scaling)
    _last = None  # weak reference to the scaler that scaled last
    _undo = []

    @classmethod
    def add(cls, loop):
        cls.loops.add(loop)
        if not cls._undo:
            for kind in _kinds():
                for name, make in (("scale", cls._scale), ("update", cls._update)):
                    plain = kind.__dict__.get(name)
                    if plain is not None:
                        cls._undo.append(take_place(kind, name, plain, make(plain)))

    @classmethod
    def remove(cls, loop):
        cls.loops.discard(loop)
        if not cls.loops.refs:
            undo, cls._undo = cls._undo, []
            for one in undo:
                one()
            cls._made, cls._last = [], None

    @classmethod
    def _scale(cls, plain):
        def scale(self, outputs, *arguments, **options):
            out = plain(self, outputs, *arguments, **options)
            try:
                cls._remember(self, outputs, out)
            except Exception:  # if the loss before scaling is not kept, the recorded loss is the scaled loss divided by the scale
                pass
            return out

        return scale

    @classmethod
    def _remember(cls, scaler, outputs, out):
        if out is outputs:  # the scaler is off
            return
        cls._last = weakref.ref(scaler)
        for held in cls.loops.refs:
            loop = held()
            if loop is not None:
                loop.scales(scaler)
        pairs = [(outputs, out)] if hasattr(out, "detach") else zip(outputs, out) if isinstance(out, (list, tuple)) else ()
        for before, after in pairs:
            cls._made = [*cls._made[1 - _MOST :], (weakref.ref(after), before.detach())]

    @classmethod
    def _update(cls, plain):
        def update(self, *arguments, **options):
            for held in cls.loops.refs:
                loop = held()
                if loop is not None:
                    loop.scaler_updates()
            return plain(self, *arguments, **options)

        return update

    @classmethod
    def source(cls, loss):
        """Returns the loss from which this one was computed, or None."""
        return next((before for after, before in reversed(cls._made) if after() is loss), None)

    @classmethod
    def scaler(cls):
        """Returns the scaler that scaled last, or None."""
        return cls._last and cls._last()

    @classmethod
    def scales_this_step(cls):
        return bool(cls._made)

    @classmethod
    def step_ends(cls):
        if cls._made:
            cls._made = []
