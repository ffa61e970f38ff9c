"""Observes gradients before the update that uses them. Observes for each optimizer only the gradients of its own
parameters: those of other optimizers belong to older losses."""

import math
from time import thread_time

from .._screen import Screen, look, norms, total_norm
from .._shards import gradients, is_idle
from .clipping import Before
from .losses import numbered
from .words import processes


_EACH = 8  # if there are more optimizers than this, usually with one parameter each, they have one common norm


class Gradients:
    """The gradients of one watch's optimizers."""

    def __init__(self, run, found, trained, shards, first, named):
        """found: [unwrap.Opened]. trained: (name, parameter) pairs; parameters that no optimizer holds are observed with
        those of the first optimizer. named: returns such pairs of all parameters."""
        self._run, self._shards, self._found, self._named = run, shards, found, named
        optimizers = [one.inner for one in found]
        self.screen = Screen()
        self._series = {id(o): numbered("grad_norm", first + k) for k, o in enumerate(optimizers)}
        self._optimizers, self._trained, self._groups = optimizers, trained, 0
        self.together = {} if len(optimizers) > _EACH else None  # {id of an optimizer: (series, norm)} in the open step
        self._before = Before(dict(trained))
        self._divide()
        self._words = {}  # id of an optimizer -> the due word of a gradient
        self._heard = set()  # names of parameters whose gradient was observed
        self.moving = ()  # names of parameters whose gradient was not zero in the step that was screened last
        self.screened = None  # the step that was screened last
        self.seconds = 0.0  # the time that the screening of that step took
        # Inside of a framework's step: {id of an optimizer: due}; the norm of the optimizers that stepped.
        self._framed, self._framed_total = None, None
        self.poisoned = False  # whether a gradient was NaN or infinite: then the bits of the changed weights have no meaning

    def _divide(self):
        """Assigns parameters to optimizers. A gradient that no optimizer holds is often never cleared, so it does not
        count in a norm.

        If no parameter is held, optimizers have copies of the weights (masters, shards). Then all parameters count.
        """
        holder = {id(p): id(one.inner) for one in reversed(self._found) for p in one.parameters()}
        pieces = {id(piece.parameter): piece for one in self._found for piece in one.pieces}
        known = {id(p) for _, p in self._trained}
        late = [(name, p) for name, p in self._named() if p.requires_grad and id(p) in holder and id(p) not in known] if self._groups else ()
        self._trained.extend(late)  # parameters that were unfrozen or added since then
        self._before.add(late)
        free = {name for name, p in self._trained if id(p) not in holder}
        self._free = free if len(free) < len(self._trained) else set()
        self._parts = {}
        for o in self._optimizers:
            none = id(o) if o is self._optimizers[0] else None
            self._parts[id(o)] = [(name, pieces.get(id(p), p)) for name, p in self._trained if holder.get(id(p), none) == id(o)]
        self._groups = self._count()

    def _count(self):
        return sum(len(one.groups()) for one in self._found if one.frame is None)  # add_param_group: layers that are unfrozen later

    def divide_again(self):
        """Assigns parameters to optimizers again, because an optimizer holds parameters that were not trained
        before."""
        self._divide()
        self._words.clear()

    def due(self, optimizer):
        """Returns whether one optimizer's gradients are due. All of them are due at the same steps, except for their first."""
        part = self._parts[id(optimizer)]
        word = self._words.get(id(optimizer))
        if word is None and part:
            words = self._run._tensor_words
            word = next((words[name, "gradient"] for name, _ in part if (name, "gradient") in words), None)
            if word is not None:
                self._words[id(optimizer)] = word
        return bool(part) and (word is None or self._run._step >= word[0])

    def observe(self, optimizer, paced, scale, clips=(), chosen=None):
        """Observes the gradients. Returns why the weights should be measured as the forward pass used them, or None.
        `paced`: this step is screened. `chosen`: names of the gradients that are measured; None: all that are due."""
        if self._groups != self._count():
            self.divide_again()
        due = self._wants(optimizer, chosen) if self._framed is None else self._framed.get(id(optimizer), False)
        if not paced and clips and self._framed is None:
            norm = self.clipped(optimizer, clips)
            if norm is not None:
                self._record(optimizer, self._series[id(optimizer)], norm)
        held = gradients(self._parts[id(optimizer)], self._shards) if due or paced else ()
        if not held:
            return None
        why = self._screened(optimizer, *zip(*held), scale, clips) if paced else None
        if due or (paced and chosen is None and not self._heard.issuperset(name for name, _ in held)):
            if chosen is not None:
                held = [pair for pair in held if pair[0] in chosen]
            self._heard.update(name for name, _ in held)
            with self._run.together():
                for name, gradient in held:
                    if not is_idle(name, gradient, self._shards):
                        self._run.observe_tensor(name, gradient if scale == 1 else gradient / scale, role="gradient")
        return why

    def _wants(self, optimizer, chosen):
        return self.due(optimizer) if chosen is None else bool(chosen)

    def clipped(self, optimizer, clips):
        """Returns the norm before a clip, in a step that is not screened; None if it may be the norm of other gradients."""
        clip = self._before.known(clips, id(optimizer), self._parts[id(optimizer)])
        return None if clip is None else clip.value()

    def _record(self, optimizer, series, norm):
        if self.together is None:
            self._run._own_scalar(series, norm)
        else:
            self.together[id(optimizer)] = series, norm

    def step_ends(self, stepped):
        """Records one norm of all gradients, if the norm of each optimizer that has stepped is known. `stepped`: the
        ids of these optimizers."""
        known, self.together = self.together, {}
        if known and known.keys() == stepped:
            first = self._series[id(self._optimizers[0])]
            shards = any(series.startswith("shard_") for series, _ in known.values())
            self._run._own_scalar(f"shard_{first}" if shards else first, math.hypot(*(norm for _, norm in known.values())))

    def frame_begins(self, chosen=None):
        """Called for a framework's step, in which an optimizer may step several times: once for each part of its
        parameters."""
        self._framed, self._framed_total = {id(o): self._wants(o, chosen) for o in self._optimizers}, None

    def frame_ends(self, made, norm):
        """`norm`: the norm that the framework computed over all ranks and before its clip, or None."""
        self._framed, total = None, self._framed_total if norm is None else float(norm)
        if made and total is not None:
            self._run._own_scalar(self._series[id(self._optimizers[0])], total)

    def screen_light(self, step, clips):
        """For a light step returns (the norm before a clip, why a measurement is due). (None, None) if there is no
        gradient."""
        if self._groups != self._count():
            self.divide_again()
        optimizer = self._optimizers[0]
        held = gradients(self._parts[id(optimizer)], self._shards)
        if not held:
            return None, None
        self.screened, self.moving = None, set()
        return self._norm(optimizer, *zip(*held), 1.0, clips, step)

    def _norm(self, optimizer, names, gradients, scale, clips, step):
        """Returns (the norm of all before a clip, why a measurement is due)."""
        each = norms(self._run._library.short, gradients)
        if scale != 1:
            each = [norm / scale for norm in each]
        kept = [(name, norm) for name, norm in zip(names, each) if name not in self._free]
        total = None
        if kept:
            total = self._before.total(clips, id(optimizer), self._parts[id(optimizer)], *zip(*kept), self._shards)
        total = total_norm(norm for _, norm in kept) if total is None else total
        self.poisoned |= not math.isfinite(total)
        self.moving.update(name for name, norm in zip(names, each) if norm > 0)
        return total, self.screen.gradients(names, each, step)

    def _screened(self, optimizer, names, gradients, scale, clips):
        began = thread_time()
        if self.screened != self._run._step:
            self.screened, self.moving, self.seconds = self._run._step, set(), 0.0
        total, why = self._norm(optimizer, names, gradients, scale, clips, self._run._step)
        if self._framed is None:
            whole = bool(clips) or not self._shards or processes() == 1
            self._record(optimizer, self._series[id(optimizer)] if whole else f"shard_{self._series[id(optimizer)]}", total)
        else:
            self._framed_total = math.hypot(self._framed_total or 0.0, total)
        look(self._run, why)
        self.seconds += thread_time() - began
        return why if not math.isfinite(total) else None
