"""The run of a process whose trainer has no line of Plumbline: finds the models of the optimizers that step, and watches them.

A process without a step of an optimizer opens nothing. If the trainer itself calls plumbline.init, that run replaces this one.
"""

import os
import sys
import weakref

from . import frameworks
from .find import Living, Modules, Refused, describe, engine_of
from .names import run_name, script

_PATIENCE = 16  # steps of one optimizer, after which the others that have not stepped are not waited for
_NAMED = 3  # the most modules that are named as not watched


class _Attached:
    """What this process watches. `waiting`: optimizer -> its steps, in the order of their first ones."""

    def __init__(self):
        self.run, self.pid, self.opening, self.by_code = None, None, False, False
        self.waiting, self.trainers, self.settled, self.ours = {}, weakref.WeakSet(), weakref.WeakSet(), set()


_state = _Attached()


def code_opens():
    """Called when plumbline.init is called. If the trainer's own code calls it, its run replaces ours."""
    if _state.opening:
        return
    _state.by_code = True
    run, _state.run = _state.run, None
    if run is not None and _state.pid == os.getpid():
        print("plumbline: the trainer opens a run itself; the one of plumb run ends", file=sys.stderr)
        run.finish()


def take(optimizer):
    """Called after a step of an optimizer. Returns True if nothing is left to do for it. Raises Refused."""
    if _state.by_code or optimizer in _state.settled:
        return True
    if _state.run is not None and _state.pid != os.getpid():
        raise Refused("it was forked from a process that is watched; start trainers by spawn, or before the first step")
    trainer = frameworks.calling_trainer()
    _state.waiting[optimizer] = _state.waiting.get(optimizer, 0) + 1
    patient = max(_state.waiting.values()) < _PATIENCE
    if trainer is not None:
        if trainer[1] not in _state.trainers and patient and not frameworks.has_stepped(trainer[1], _state.waiting):
            return False
        _state.waiting = {}
        return _join(*trainer)
    if patient and _others():
        return False
    stepped, _state.waiting = _state.waiting, {}
    _watch(stepped)
    return True


def _others():
    """Returns whether optimizers of living modules have not stepped yet. Only then a loop's step is not over."""
    living = Living()
    apart = [one for one in living.optimizers if one not in _state.waiting and one not in _state.settled]
    held = Modules(living, _state.ours).held() if apart else set()
    return any(living.parameters(one) & held for one in apart)


# ---- opening -------------------------------------------------------------------------------------


def _options():
    options = {} if run_name() is None else {"run": run_name()}
    if not os.environ.get("PLUMBLINE_SERVER") and not os.environ.get("PLUMBLINE_RECORD"):
        options["record"] = os.path.join("plumbline", options.get("run") or os.environ["PLUMBLINE_RUN"])
    return options


def _open(make):
    """Calls `make`, which opens the run."""
    from .. import _library, _mistakes

    try:
        _library.load()
    except _library.LibraryMissing as error:
        raise Refused(str(error)) from None
    _mistakes.as_lines = True
    _state.opening, _state.pid = True, os.getpid()
    try:
        _state.run = make()
    except _mistakes.PlumblineError as error:
        raise Refused(str(error)) from None
    finally:
        _state.opening = False


def _init():
    from .. import init

    run = init(strict=True, **_options())
    run._strict = False
    return run


def _join(framework, trainer):
    """Lets a framework's own callback watch. Returns True."""
    if trainer in _state.trainers:
        return True
    _state.trainers.add(trainer)
    join = frameworks.join_transformers if framework == "transformers" else frameworks.join_lightning
    _print(f"the model of {type(trainer).__name__}", "")
    _open(lambda: join(trainer, _options()))
    return True


# ---- watching ------------------------------------------------------------------------------------


def _made(stepped):
    """Returns the number of steps that the loop has made: the count of a resumed optimizer's state, else of those seen here."""
    from .._watching.loop import _steps_made

    return max(max(_steps_made(one), made) for one, made in stepped.items())


def _print(what, more):
    print(f"plumbline: attached to {script()} after its first step: {what}{more}", file=sys.stderr)


def _unwatched(living, modules, watched):
    """Returns words for models that no optimizer holds: a reference, an average."""
    held = set().union(*map(living.parameters, living.optimizers), *map(modules.holds, watched))
    names = [describe(root) for root in modules.roots if modules.holds(root) and not modules.holds(root) & held]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"; not watched, because no optimizer holds it: {', '.join(names[:_NAMED])}{more}" if names else ""


class _Pair:
    """A model, or the parts of one, and its optimizers."""

    def __init__(self, roots, equal):
        self.roots, self.equal, self.optimizers = roots, equal, []

    def model(self):
        if len(self.roots) == 1:
            return self.roots[0]
        return sys.modules["torch"].nn.ModuleList(self.roots)

    def words(self):
        text = " and ".join(map(describe, self.roots))
        text += f" (one of {self.equal + 1} modules with the same parameters)" if self.equal else ""
        return f"{text} with {', '.join(dict.fromkeys(type(one).__name__ for one in self.optimizers))}"


def _pairs(stepped, living, modules):
    """Returns the models with their optimizers, in the order of the first steps."""
    pairs, outer = [], []
    for one in stepped:
        out = living.outermost(one)
        if any(out is each for each in outer):
            continue
        outer.append(out)
        engine = engine_of(one) or engine_of(out)
        roots, equal = ([engine], 0) if engine is not None else modules.owners(living.parameters(one))
        if not roots:
            continue
        pair = next((each for each in pairs if any(a is b for a in each.roots for b in roots)), None)
        if pair is None:
            pair = _Pair([], equal)
            pairs.append(pair)
        pair.roots += [root for root in roots if not any(root is each for each in pair.roots)]
        pair.optimizers.append(out)
    return pairs


def _complete(pair, living, modules, stepped):
    """Adds the optimizers of the model that have not stepped, unless they hold a parameter of one that has: those are left from before."""
    mine = set().union(*map(modules.holds, pair.roots))
    taken = set().union(*map(living.parameters, stepped))
    for one in living.optimizers:
        out, ids = living.outermost(one), living.parameters(one)
        if ids & mine and not ids & taken and not any(out is each for each in pair.optimizers):
            pair.optimizers.append(out)
            taken |= ids


def _watch(stepped):
    living = Living()
    modules = Modules(living, _state.ours)
    pairs = _pairs(stepped, living, modules)
    _state.settled.update(stepped)
    if not pairs:
        text = f"no living torch.nn.Module owns the parameters of {type(next(iter(stepped))).__name__}"
        if _state.run is None:
            raise Refused(text)
        print(f"plumbline: not watched: {text}", file=sys.stderr)
        return
    for pair in pairs:
        _complete(pair, living, modules, stepped)
    _print(", ".join(pair.words() for pair in pairs), _unwatched(living, modules, [root for pair in pairs for root in pair.roots]))
    if _state.run is None:
        _open(_init)
        if hasattr(_state.run, "_next_step"):  # not in a run that is disabled
            _state.run._next_step = max(_state.run._next_step, _made(stepped))
    for pair in pairs:
        model = pair.model()
        if len(pair.roots) > 1:
            _state.ours.add(id(model))
        _leave(model)
        _state.run.watch(model, pair.optimizers if len(pair.optimizers) > 1 else pair.optimizers[0])


def _leave(model):
    """Ends the watch of a model that gets other optimizers."""
    models = getattr(_state.run, "_models_watched", None)
    before = models.watch_of(model) if models is not None else None
    if before is not None:
        before.remove()
