"""check_causality on a copy of a model: at the first training pass of a watched one, and for `doctor --model`."""

import copy
import sys

from .._routers import hook_forward
from .._watching.passes import place_of_ids
from . import check_causality
from .verdict import CausalityError

WHEN = "first-step"
_SEQUENCES = 4  # of the batch
_SECONDS = 60.0  # limit of the search
_EXTRAS = ("batch", "documents", "labels")


def on_copy(model, inputs, words, **options):
    """Returns the verdict about a copy of `model`, called with positional `inputs` and keywords `words`. Raises
    CausalityError if the token ids cannot be found, or if the model cannot be copied or fails."""
    torch = sys.modules["torch"]
    place = "decoder_input_ids" if words.get("decoder_input_ids") is not None else place_of_ids(inputs, words)
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False) and place != "decoder_input_ids":
        raise CausalityError("the model has an encoder; expected decoder_input_ids")
    if place is None:
        raise CausalityError("found no argument with token ids")
    given = (inputs if isinstance(place, int) else words)[place]
    if given.dim() != 2 or (isinstance(place, int) and (place or len(inputs) > 1)):
        raise CausalityError("expected token ids [B,S] as the first argument, and all others by keyword")
    try:
        twin = copy.deepcopy(model)
    except Exception as error:
        raise CausalityError(f"the model cannot be copied: {type(error).__name__}: {error}") from error
    size = len(given)
    first = lambda value: value[:_SEQUENCES] if torch.is_tensor(value) and value.dim() and len(value) == size else value
    rest = {name: first(value.detach() if torch.is_tensor(value) else value) for name, value in words.items() if name != place}
    return check_causality(twin, first(given), inputs=rest, argument=None if isinstance(place, int) else place, **options)


class FirstStep:
    """Checks the model at its first training pass, once. `verdict`: None before that, and if the check failed."""

    def __init__(self, module, given):
        """module: the model without wrappers; given: the object whose forward pass is awaited."""
        self.verdict, self._module = None, module
        _, self._remove = hook_forward(given, self._forward)

    def remove(self):
        remove, self._remove = self._remove, lambda: None
        remove()

    def _forward(self, module, inputs, words):
        torch = sys.modules["torch"]
        if not (module.training and torch.is_grad_enabled()) or torch.jit.is_tracing():
            return
        self.remove()
        try:
            self.verdict = on_copy(self._module, inputs, words, extras=_EXTRAS, budget_s=_SECONDS)
            print(f"plumbline: causality: {self.verdict}", file=sys.stderr)
        except Exception as error:  # no error of this package may end the trainer's step
            print(f"plumbline: causality: not checked: {error}", file=sys.stderr)


def examine(line, model, inputs):
    """Prints the verdict about a model and its example inputs with line(what, text). Returns whether it is an error: only
    if the name of the model's class states that it is a causal language model."""
    named = inputs if isinstance(inputs, dict) else {}
    given = () if named else tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    try:
        verdict = on_copy(model, given, named, mode="train")
    except CausalityError as error:
        line("causality", f"not checked: {error}")
        return False
    for text in str(verdict).splitlines():
        line("causality", text.strip())
    leaks = verdict.verdict == "finding" and verdict.level == "error"
    if leaks and not _is_causal(model):
        line("causality", "no fault if the model is meant to see both sides, as encoders do")
    return leaks and _is_causal(model)


def _is_causal(model):
    name = type(model).__name__
    return "ForCausalLM" in name or "LMHead" in name
