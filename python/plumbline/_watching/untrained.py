"""Trained parameters that have had no gradient at any optimizer step so far: the evidence of health/no-gradient."""

import re
from time import perf_counter, thread_time

from .._compiled import compiles
from .._routers import OnlyHere
from .._screen import Checksums
from .._shards import named_parameters, part
from .._tensors import local
from .unwrap import held_by, held_elsewhere

_FIRST = 3  # number of optimizer steps before the first record; later records are at 8, 32, 128, ...
_MOST_NAMES, _MOST_MODULES = 8, 512
_SCANNED, _SCAN_SHARE = 8, 5e-4  # the fewest steps between two scans (later a quarter of the steps so far); the share of the time that scans may cost
_RARELY = 256  # the most steps between two scans, if the share allows more scans
_STEPS_OF_OTHERS = 64  # number of steps of the other optimizers, after which an optimizer that never stepped is reported
_MOST_EACH_STEP = 256  # parameters without a gradient: if there are more, they are checked in the first steps and at powers of two
_GROUPS = (re.compile(r"\.lora_[^.]+"), re.compile(r"(?<=experts)\.\d+\..*"))  # the part of a parameter's name before the match names a group
_RAN, _NEVER_RAN, _WHOLE, _REPLACED = 1, 2, 3, 4  # values of trained/never:NAME
_ORDER = (_WHOLE, _RAN, _NEVER_RAN)


def _group(name):
    """Returns the adapter of a module, or the experts of a layer, to which the parameter belongs; or None."""
    for pattern in _GROUPS:
        found = pattern.search(name)
        if found:
            return name[: found.start()]
    return None


class Untrained:
    """The untrained parameters of one watch."""

    def __init__(self, run, model, prefix, trained, found, compiled, let_go):
        """let_go() is called if held parameters are trained now and were not before."""
        self._run, self._model, self._prefix, self._compiled = run, model, prefix, compiled
        self._found = {id(one.inner): one for one in found}
        self._known, self._trained_now, self._let_go = {id(p) for _, p in trained}, trained, let_go
        self._waiting = None  # {id of a parameter: (name, parameter)} of parameters that an optimizer holds and that have had no gradient so far
        # Parameters that are trained now but were not when the watch began, and that no optimizer holds; ids of those
        # with a gradient.
        self._late, self._graded = [], set()
        self._steps, self._next, self._counted = 0, _FIRST, None
        self._last = {}  # id of an optimizer -> the newest step of that optimizer
        self._updates, self._holder = {}, {}  # {id of an optimizer: number of its updates}; {id of a parameter: id of its optimizer}
        self._ran, self._undo = set(), None
        self._sums = self._before = None
        self._scan_at, self._scanned_at, self._new, self._reported_new = _SCANNED, None, (), False
        # Number of steps of the other optimizers; number of checks in which an optimizer that never stepped had
        # gradients.
        self._others, self._graded_idle = 0, 0

    @property
    def looks(self):
        """Returns whether there is anything to check or to record."""
        several = len(self._found) > 1 and self._others <= _STEPS_OF_OTHERS
        return self._waiting is None or bool(self._waiting) or self._next == _FIRST or several

    # ---- steps that are recorded by stores alone --------------------------------------------------

    @property
    def settled(self):
        """Returns whether the first steps are over and no parameter waits for a second scan."""
        return self._next > _FIRST and len(self._found) == 1 and (self._reported_new or not self._new)

    def waiting(self):
        """Returns the parameters that have had no gradient."""
        return tuple(p for _, p in (self._waiting or {}).values())

    def graded(self, parameters):
        """Removes the parameters that have a gradient now. Returns the others."""
        for p in parameters:
            if p.grad is not None:
                self._waiting.pop(id(p), None)
        return tuple(p for p in parameters if p.grad is None)

    def skipped(self, optimizer, steps):
        """Records `steps` updates for which before_update was not called."""
        self._steps += steps if self._steps else 0
        self._updates[id(optimizer)] = self._updates.get(id(optimizer), 0) + steps

    # ---- parameters that come later ------------------------------------------------------------

    def scans(self, step):
        return self._waiting is not None and step >= self._scan_at

    def scan(self, step):
        """Finds parameters that no optimizer holds and that are trained now, but were not trained, or were others,
        when the watch began.

        Called after an update, while gradients still exist.
        """
        began = thread_time()
        held = held_by(self._found.values()) | held_elsewhere(self._found.values())
        named, seen = self._named(), {id(p) for _, p in self._trained_now}
        new = [(name, p) for name, p in named if id(p) not in held and id(p) not in self._known and p.grad is not None]
        if any(id(p) in held and id(p) not in seen for _, p in named):
            self._let_go()
        again = {id(p) for _, p in self._new}
        self._new = () if self._reported_new else new
        if self._held and any(id(p) in again for _, p in self._new):
            self._reported_new = True
            record = self._run._own_scalar
            record("trained/steps", _FIRST)  # the fewest steps since the first of two scans
            record("trained/held", self._held)
            record("trained/replaced", len(self._new))
            self._name([(name, _REPLACED) for name, _ in self._new])
        now = perf_counter()
        period = (now - self._scanned_at[1]) / max(1, step - self._scanned_at[0]) if self._scanned_at else 0
        rest = int((thread_time() - began) / (_SCAN_SHARE * period)) if period else 0
        self._scanned_at = (step, now)
        self._scan_at = step + (3 if self._new and not self._reported_new else max(_SCANNED, rest, min(step // 4, _RARELY)))

    def _look_at_idle(self):
        """If there are several optimizers, checks whether one has never stepped though its parameters have gradients."""
        idle = [one for of, one in self._found.items() if of not in self._updates]
        self._others = max(self._updates.values(), default=0)
        if not idle or self._others > _STEPS_OF_OTHERS or self._others & (self._others - 1):
            return
        parameters = [p for one in idle for group in one.groups() for p in group["params"]]
        self._graded_idle += any(p.grad is not None for p in parameters)
        if self._others == _STEPS_OF_OTHERS and self._graded_idle > 6:  # there were seven checks
            record = self._run._own_scalar
            record("trained/unstepped", len(parameters))
            record("trained/others", self._others)
            for one in idle:
                record(f"trained/unstepped:{type(one.inner).__name__}", 1)

    def _named(self):
        return [(self._prefix + name, p) for name, p in named_parameters(self._model) if p.requires_grad]

    def _begin(self):
        """Called at the first update. At this time the parameters that replace others (by FSDP2, or by a new head) are
        in place."""
        named = self._named()
        held, elsewhere = held_by(self._found.values()), held_elsewhere(self._found.values())
        # Other ranks hold all elements of some parameters, and their gradients.
        named = [(name, p) for name, p in named if local(part(p)).numel() and id(p) not in elsewhere]
        self._waiting = {id(p): (name, p) for name, p in named if id(p) in held}
        self._holder = {id(p): of for of, one in self._found.items() for p in one.parameters()}
        self._held, self._trained = len(self._waiting), len(named)
        self._late = [(name, p) for name, p in named if id(p) not in held and id(p) not in self._known]
        if not self._held and named:
            self._sums = Checksums(self._run._library.short, [p for _, p in named])
            self._before = self._sums()

    def before_update(self, optimizer):
        """Called before the update of one optimizer, with the gradients that it reads."""
        if self._waiting is None:
            self._begin()
        if self._counted != self._run._step:  # if there are several optimizers, the steps of the first one count
            self._counted = self._run._step
            self._steps += bool(self._held) or any(group.get("lr", 1) for group in optimizer.param_groups)
        if self._last.get(id(optimizer)) != self._run._step:  # DeepSpeed steps once for each group
            self._last[id(optimizer)] = self._run._step
            self._updates[id(optimizer)] = self._updates.get(id(optimizer), 0) + 1
        if self._late and self._steps <= _FIRST:
            self._graded.update(id(p) for _, p in self._late if p.grad is not None)
        waiting = self._waiting
        if not waiting or (len(waiting) > _MOST_EACH_STEP and self._steps > 16 and self._steps & (self._steps - 1)):
            return
        for p in self._found[id(optimizer)].graded(waiting):
            waiting.pop(id(p), None)

    def step_ends(self):
        """Called after an update, in the open step."""
        if self._waiting is None:
            return
        if len(self._found) > 1:
            self._look_at_idle()
        if self._steps == _FIRST - 1 and self._waiting and self._undo is None and not self._compiled and not compiles():
            self._listen()
        if self._steps >= self._next:
            self._next = 8 if self._next == _FIRST else 4 * self._next
            self._record()
            if not self._waiting or self._next > 8:
                self.remove()

    # ---- whether their modules run -------------------------------------------------------------

    def _listen(self):
        self._undo = []
        for module in list(dict.fromkeys(self._module(name) for name, _ in self._waiting.values()))[:_MOST_MODULES]:
            self._undo.append(module.register_forward_pre_hook(OnlyHere(self._runs)).remove)

    def _module(self, name):
        return self._model.get_submodule(name[len(self._prefix) :].rpartition(".")[0])

    def _runs(self, module, _inputs):
        if module.training:
            self._ran.add(id(module))

    def remove(self):
        undo, self._undo = self._undo or [], []
        for one in undo:
            one()

    # ---- records -------------------------------------------------------------------------------

    def _record(self):
        record = self._run._own_scalar
        record("trained/steps", self._steps)
        record("trained/held", self._held)
        if not self._held:
            moved = self._sums is not None and self._sums() != self._before
            record("trained/unheld", self._trained)
            record("trained/moved", moved)
            if not moved:
                self._name([(name, _NEVER_RAN) for name, _ in self._named()])
            return
        never = [one for of, one in self._waiting.items() if self._updates.get(self._holder.get(of), 0) >= _FIRST]
        record("trained/never", len(never))
        if never:
            self._record_never(never)
        replaced = [name for name, p in self._late if id(p) in self._graded]
        record("trained/replaced", len(replaced))
        self._name([(name, _REPLACED) for name in replaced])

    def _record_never(self, never):
        ran = [name for name, _ in never if not self._compiled and id(self._module(name)) in self._ran]
        whole = self._whole(ran)
        self._run._own_scalar("trained/ran", len(ran))
        self._run._own_scalar("trained/whole", len(whole))
        words = {**dict.fromkeys(ran, _RAN), **dict.fromkeys(whole, _WHOLE)}
        self._name(sorted(((name, words.get(name, _NEVER_RAN)) for name, _ in never), key=lambda pair: _ORDER.index(pair[1])))

    def _whole(self, ran):
        """Among those whose modules ran, keeps all of an adapter and all experts of a layer; or all, if they are most
        of what is trained."""
        if 2 * len(ran) > self._held:
            return ran
        names = [self._prefix + name for name, p in self._model.named_parameters() if p.requires_grad]
        have = {_group(name) for name in names} - {_group(name) for name in set(names) - set(ran)}
        return [name for name in ran if _group(name) in have - {None}]

    def _name(self, pairs):
        for name, value in pairs[:_MOST_NAMES]:
            self._run._own_scalar(f"trained/never:{name}", value)
