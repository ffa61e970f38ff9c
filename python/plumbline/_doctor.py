"""python -m plumbline doctor: prints how run.watch would classify each module, and which ones it would not watch."""

import contextlib
import copy
import importlib
import os
import random
import sys
import traceback

from . import _intended
from ._causality.first_step import examine as causality
from ._routers import Routers
from ._watching.budget import Budget
from ._watching.ddp import is_ddp

_NAMED = 3  # number of parameters that the report names, if there are many
_NOT_OWN = ("site-packages", "dist-packages", "importlib", os.path.dirname(__file__) + os.sep)  # parts of the paths of files that are not the user's


class _Refused(Exception):
    """The model could not be made: the reason in one line."""


# ---- making the model ---------------------------------------------------------------------------


def _where(error):
    """Returns file:line of the innermost line of the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(word in f.filename for word in _NOT_OWN)]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.relpath(error.filename)}:{error.lineno}: "
    return f"{os.path.relpath(own[-1].filename)}:{own[-1].lineno}: " if own else ""


def _message(error):
    return f"{type(error).__name__}: {' '.join(str(error).split()) or '(no text)'}"


def _factory(text):
    name, _, function = text.partition(":")
    if not name or not function:
        raise _Refused(f"--model is {text!r}; expected MODULE:FACTORY, as in my_trainer.model:build")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise _Refused(f"there is no module {name} in {os.getcwd()} or on PYTHONPATH") from None
        raise _Refused(f"importing {name}: {_where(error)}{_message(error)}") from None
    except (Exception, SystemExit) as error:
        raise _Refused(f"importing {name}: {_where(error)}{_message(error)}") from None
    made = getattr(module, function, None)
    if not callable(made):
        own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", None) == name and n[0] != "_"]
        raise _Refused(f"{name} has no function {function}; it has {', '.join(own[:8]) or 'none'}")
    return made


def _make(text):
    """Returns (model, optimizers, example inputs or None)."""
    factory = _factory(text)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(factory, torch.nn.Module):
        raise _Refused(f"{text} is a {type(factory).__name__} itself; expected a function that returns one")
    try:
        made = factory()
    except (Exception, SystemExit) as error:
        raise _Refused(f"{text}: {_where(error)}{_message(error)}") from None
    torch = sys.modules.get("torch")
    parts = list(made) if isinstance(made, (tuple, list)) else [made]
    if torch is None or not 1 <= len(parts) <= 3 or not isinstance(parts[0], torch.nn.Module):
        raise _Refused(f"{text} returned {type(made).__name__}; expected a torch.nn.Module, (model, optimizer) or "
                       "(model, optimizer, example_inputs)")  # fmt: skip
    if isinstance(parts[0], torch.jit.ScriptModule):
        raise _Refused(f"{text} returned a ScriptModule, in which no hook runs; expected the model before torch.jit")
    lazy = getattr(torch.nn.parameter, "is_lazy", lambda p: False)
    if any(lazy(p) for p in parts[0].parameters()):
        raise _Refused(f"{text} returned a model whose parameters have no shape yet; expected it after one forward pass")
    model, optimizer, inputs = parts + [None] * (3 - len(parts))
    optimizers = [] if optimizer is None else list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    for one in optimizers:
        if not isinstance(one, torch.optim.Optimizer):
            raise _Refused(f"{text}: the second of what it returned is {type(one).__name__}; expected an optimizer of "
                           "torch.optim, or a list of them")  # fmt: skip
    return model, optimizers, inputs


# ---- the report ---------------------------------------------------------------------------------


class _Report:
    """Returns the lines, and the things that would not be watched."""

    def __init__(self):
        self.missing = []

    def line(self, what, text):
        print(f"  {what:<12} {text}")

    def miss(self, what, why, remedy):
        self.missing.append((what, why, remedy))

    def end(self):
        for what, why, remedy in self.missing:
            self.line("not watched", f"{what}: {why}. {remedy}")
        print(f"{len(self.missing)} not watched" if self.missing else "everything would be watched")
        return 1 if self.missing else 0


def _names(names):
    names = list(names)
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _parameters(report, model):
    named = dict(model.named_parameters())
    trained = {n: p for n, p in named.items() if p.requires_grad}
    frozen = [n for n in named if n not in trained]
    first, tied = {}, []
    for prefix, module in model.named_modules():
        for name, p in module._parameters.items():
            full = f"{prefix}.{name}" if prefix else name
            if p is not None and first.setdefault(id(p), full) != full:
                tied.append(f"{full} = {first[id(p)]}")
    numbers = sum(p.numel() for p in trained.values())
    counted = [f"{len(names)} {what}" + (f": {_names(names)}" if names else "")
               for what, names in (("frozen", frozen), ("tied", tied))]  # fmt: skip
    report.line("parameters", ", ".join([f"{len(trained)} trained ({numbers:,} numbers)", *counted]))
    return trained


def _optimizers(report, optimizers, trained):
    if not optimizers:
        report.line("optimizer", "none was returned")
        return
    held = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
    own = {id(p) for p in trained.values()}
    for one in optimizers:
        kind = _intended.kind_of(one)
        groups = f"{len(one.param_groups)} group{'s' if len(one.param_groups) > 1 else ''}"
        report.line("optimizer", f"{type(one).__name__}, {groups}" + (f", updates recomputed as {kind}" if kind else ""))
        if kind is None:
            report.miss(f"updates of {type(one).__name__}", "its update rule is not known", "report them with run.observe_update")
    left = [name for name, p in trained.items() if id(p) not in held]
    if left:
        report.miss(f"updates of {_names(left)}", "no optimizer holds them", "pass them to an optimizer, or freeze them")
    foreign = len(held - own)
    if foreign:
        report.line("optimizer", f"holds {foreign} parameters that are frozen or not the model's")


def _wrappers(report, model):
    kinds = {type(m).__name__ for m in model.modules()}
    if is_ddp(model):
        report.line("ranks", "DistributedDataParallel: sums over ranks and the ranks' copies")
    elif "FullyShardedDataParallel" in kinds:
        report.miss("sums of FullyShardedDataParallel", "it uses its own reductions",
                    "report sums with run.reducing or run.observe_reduction")  # fmt: skip
    elif "DataParallel" in kinds:
        report.miss("replicas of DataParallel", "they are created again in each forward pass", "use DistributedDataParallel")
    else:
        report.line("ranks", "one (no DistributedDataParallel around the model)")


def _capacity(found):
    if found.places == "none":
        return "capacity: none is set"
    if found.places is not None:
        return f"capacity: {found.places}, a number set in the module"
    if found.limited:
        return "capacity: a factor; the number is derived from the dispatch mask, the call that drops, or the load of full experts"
    return "capacity: none found"


def _routers(report, routers):
    alike = {}
    for router in routers.routers:
        alike.setdefault(f"{router.found.words()}; {_capacity(router.found)}", []).append(router.found.name)
    for words, names in alike.items():
        report.line("router", f"{_names(names)}: {words}")
    for name, why in routers.refused.items():
        report.miss(f"router {name}", why, "report it with run.observe_routing")
    if not routers.routers and not routers.refused:
        report.line("router", "none found")


# ---- one forward pass ---------------------------------------------------------------------------


class _Heard:
    """Replaces a run: keeps the calls that its routers make."""

    def __init__(self):
        self._step, self._spent, self._due, self._sites = 0, 0, {}, {}
        self.calls, self.warnings = {}, {}
        self._budget = Budget(1, None)

    def observe_routing(self, layer, **known):
        self.calls[layer] = known

    def _warn_once(self, key, text):
        self.warnings[key[1]] = text


@contextlib.contextmanager
def _same_dice():
    """Restores the random generators: numbers drawn inside will be drawn again."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    python, arrays = random.getstate(), numpy.random.get_state() if numpy else None
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            if numpy:
                numpy.random.set_state(arrays)


def _guarded(body, *arguments):
    body(*arguments)


def _arguments(inputs):
    """Returns (positional arguments, keywords) of a forward pass with the example inputs."""
    named = inputs if isinstance(inputs, dict) else {}
    return () if named else tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), named


def _forward(report, model, inputs):
    """Runs a copy of the model once, to see whether its routers can be observed. Returns False if it cannot be copied."""
    torch, heard = sys.modules["torch"], _Heard()
    try:
        twin = copy.deepcopy(model).train()
    except Exception as error:
        report.line("forward", f"not tested: the model cannot be copied ({_message(error)})")
        return False
    routers = Routers(heard, twin, _guarded, lambda: False)
    given, named = _arguments(inputs)
    try:
        with _same_dice(), torch.no_grad():
            routers.forward(True, (*given, *named.values()))
            twin(*given, **named)
            routers.step_ends()
    except Exception as error:
        raise _Refused(f"the forward pass with the example inputs: {_where(error)}{_message(error)}") from None
    finally:
        routers.remove()
    _report_routers(report, routers, heard)
    return True


def _report_routers(report, routers, heard):
    names = [r.found.name for r in routers.routers]
    report.line("forward", f"{len(heard.calls)} of {len(names)} routers observed")
    alike = {}
    for name in names:
        known = heard.calls.get(name)
        if known is None:
            why = heard.warnings.get(name, "watch: it did not run")
            report.miss(f"router {name}", why.split(", but ")[-1].replace("watch: ", "").replace(": not observed", ""),
                        "report it with run.observe_routing")  # fmt: skip
            continue
        kept = "kept choices observed" if "keep_mask" in known or "routing_map" in known else "the kept choices are not known"
        places = f", capacity {known['capacity']} ({known.get('capacity_source') or 'as called'})" if known.get("capacity") else ""
        rows = "" if "sequence_id" in known else "; the sequences of the rows are not known (no [B,S] token ids entered the model)"
        alike.setdefault(f"{known.get('policy') or 'token choice'}, {kept}{places}{rows}", []).append(name)
    for words, names in alike.items():
        report.line("heard", f"{_names(names)}: {words}")


# ---- one backward pass --------------------------------------------------------------------------


def _tensors(output):
    """Returns the tensors in an output, at any depth."""
    if sys.modules["torch"].is_tensor(output):
        return [output]
    parts = output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _loss(output):
    """Returns the loss that the model returns itself, or a sum over all that it returns. Returns None if nothing of it
    requires a gradient."""
    own = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    tensors = [one for one in _tensors(output if own is None else own) if one.requires_grad]
    return sum(one.float().square().mean() if own is None else one.sum() for one in tensors) if tensors else None


def _gradients(report, model, inputs):
    """Runs a copy of the model forward and backward: which trained parameters get no gradient?"""
    twin, ran = copy.deepcopy(model).train(), set()
    for module in twin.modules():
        module.register_forward_pre_hook(lambda module, *_: ran.add(id(module)))
    given, named = _arguments(inputs)
    trained = {name: p for name, p in twin.named_parameters() if p.requires_grad}
    try:
        with _same_dice(), sys.modules["torch"].enable_grad():
            loss = _loss(twin(*given, **named))
            if loss is not None:
                loss.backward()
    except Exception as error:
        report.line("gradients", f"not tested: {_where(error)}{_message(error)}")
        return
    without = [name for name, p in trained.items() if p.grad is None]
    report.line("gradients", f"{len(trained) - len(without)} of {len(trained)} trained parameters get one from the example inputs")
    owners = {name: twin.get_submodule(name.rpartition(".")[0]) for name in without}
    reached = [name for name in without if id(owners[name]) in ran]
    apart = [name for name in without if id(owners[name]) not in ran]
    if reached:
        report.miss(f"gradients of {_names(reached)}", "their modules run, but no gradient reaches them",
                    "look for no_grad, detach or a kernel without a backward pass, or freeze them")  # fmt: skip
    if apart:
        report.line("gradients", f"none for {_names(apart)}: these modules did not run (an expert without a token, an unused head)")


def examine(text):
    """Returns the exit status."""
    try:
        model, optimizers, inputs = _make(text)
        print(f"plumbline doctor: {text}, a {type(model).__name__}")
        report, plain = _Report(), model.module if is_ddp(model) else model
        trained = _parameters(report, plain)
        _optimizers(report, optimizers, trained)
        _wrappers(report, model)
        routers = Routers(_Heard(), plain, _guarded, lambda: False)
        routers.remove()
        _routers(report, routers)
        leaks = False
        if inputs is not None:
            if _forward(report, plain, inputs):
                _gradients(report, plain, inputs)
            leaks = causality(report.line, plain, inputs)
    except _Refused as why:
        print(f"plumbline doctor: {why}", file=sys.stderr)
        return 2
    return max(report.end(), int(leaks))
