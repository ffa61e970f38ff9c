"""Forward passes, and their numbers of tokens. If a model's own forward is not called, the first of its modules that
runs begins a pass."""

import sys

from .._routers import before_forward

_IDS = ("input_ids", "ids", "idx", "tokens", "words", "decoder_input_ids")  # keywords by which models get token ids
_MOST = 256  # the most modules that are hooked


def _ids(value):
    torch = sys.modules["torch"]
    return torch.is_tensor(value) and not value.is_floating_point() and value.dim() > 1


def place_of_ids(inputs, words):
    """For one forward pass returns the position of the first tensor of integers with more than one axis, or the
    keyword of the token ids, or None."""
    place = next((at for at, value in enumerate(inputs) if _ids(value)), None)
    if place is None and words:
        place = next((name for name in _IDS if _ids(words.get(name))), None)
    return place


def tokens_at(place, inputs, words):
    return 0 if place is None else (inputs if isinstance(place, int) else words)[place].numel()


class Passes:
    """The passes of one watch."""

    def __init__(self, model, call):
        """call(module, inputs, keywords) is called before the first module of a pass."""
        self._model, self._call = model, call
        self.begun = False  # whether a pass that is trained on has begun, and its backward pass has not
        self.listening, self.expected, self._undo = False, False, []
        self.light = None  # counts the passes of light steps (a Light), or None

    def listen(self, expected=False):
        """Hooks the modules. `expected`: the model's class shows before the first step that this is necessary."""
        if not self.listening:
            self.listening, self.expected = True, expected
            for module in self._first_called(self._model)[:_MOST]:
                self._undo.append(before_forward(module, self._runs))

    def _first_called(self, module):
        """Returns the children of a module. Replaces a list, which is not called, by its members."""
        torch = sys.modules["torch"]
        lists = (torch.nn.ModuleList, torch.nn.ModuleDict)
        return [one for child in module.children() for one in (self._first_called(child) if isinstance(child, lists) else [child])]

    def _runs(self, module, inputs, words):
        if not self.begun and (self.light is None or not self.light.child(module, inputs, words)):
            self._call(module, inputs, words)

    def remove(self):
        undo, self._undo = self._undo, []
        for one in undo:
            one()
