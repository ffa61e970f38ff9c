"""The beginning of run.watch: unwraps the given objects, and prints what is watched."""

import os
import sys

from .._stopping import enforce
from .._causality.first_step import WHEN, FirstStep
from .._tensors import Unsupported
from .._watch import Watch
from .frames import complete, own_optimizer
from .unwrap import Model, holders, opened
from .words import describe, processes


def watch(run, model, optimizer, scaler, activations=None, causality=None):
    """Returns a Watch, or Unsupported."""
    if causality not in (None, WHEN):
        raise Unsupported(f"causality is {causality!r}; expected {WHEN!r}")
    torch = sys.modules.get("torch")
    if isinstance(model, (list, tuple)) and model and torch is not None and all(isinstance(one, torch.nn.Module) for one in model):
        model = model[0] if len(model) == 1 else torch.nn.ModuleList(model)  # the list contains the parts of a pipeline
    if torch is None or not isinstance(model, torch.nn.Module):
        raise Unsupported(f"expected a torch.nn.Module, not {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise Unsupported("hooks do not run inside a ScriptModule: expected the model before torch.jit")
    models = run._models_watched
    model = Model(model)
    if optimizer is None:
        optimizer = own_optimizer(model.given)
    if optimizer is None:  # finds the optimizers that exist; if there are none, the first forward pass searches again
        optimizer = holders([p for p in model.module.parameters() if p.requires_grad])
    for one in optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]:
        if not opened(one):
            raise Unsupported(f"expected an optimizer of torch.optim, a framework's wrapper of one, or a list of them, not {type(one).__name__}")
    found = opened(optimizer)
    complete(found, model)
    before = models.watch_of(model.given)
    if before is not None:
        if not before.held_by_none_of([one.inner for one in found]):
            raise Unsupported("this model is watched already; expected one call, with all of its optimizers in a list")
        before.remove()  # the new optimizers replace the ones before
    run._ranks.follow(run)
    try:
        watched = Watch(run, model, found, scaler, activations)
    except Exception:
        models.leave(model.given)
        raise
    models.entered(model.given, watched)
    if run._stopping is not None:
        enforce(run, watched)
    watched.causality = None
    if causality is not None:
        watched.causality = FirstStep(model.module, model.given)
        watched._undo.append(watched.causality.remove)
    if processes() == 1 and os.environ.get("WORLD_SIZE", "1") == "1":  # the rank is known: the agent begins here, not in the first step
        watched.stages.adopt()
    print(f"plumbline: {describe(watched)}", file=sys.stderr)
    return watched
