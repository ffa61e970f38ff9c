"""Forward passes: of a model whose own forward is not called, the first of its modules that runs begins one; and how many tokens it has."""

import sys

from .._routers import before_forward

_IDS = ("input_ids", "ids", "idx", "tokens", "words", "decoder_input_ids")  # keywords that token ids are given by
_MOST = 256  # modules that are listened to


def _ids(value):
    torch = sys.modules["torch"]
    return torch.is_tensor(value) and not value.is_floating_point() and value.dim() > 1


def place_of_ids(inputs, words):
    """Of one forward pass: the position of the first tensor of integers with more than one axis, or the keyword that holds token ids, or None."""
    place = next((at for at, value in enumerate(inputs) if _ids(value)), None)
    if place is None and words:
        place = next((name for name in _IDS if _ids(words.get(name))), None)
    return place


def tokens_at(place, inputs, words):
    return 0 if place is None else (inputs if isinstance(place, int) else words)[place].numel()


class Passes:
    """Of one watch."""

    def __init__(self, model, call):
        """call(module, inputs, keywords): in front of the first module of a pass."""
        self._model, self._call = model, call
        self.begun = False  # a pass that is trained on, whose backward has not begun
        self.listening, self._undo = False, []

    def listen(self):
        if not self.listening:
            self.listening = True
            for module in self._first_called(self._model)[:_MOST]:
                self._undo.append(before_forward(module, self._runs))

    def _first_called(self, module):
        """Its children; of a list, which is not called, what is in it."""
        torch = sys.modules["torch"]
        lists = (torch.nn.ModuleList, torch.nn.ModuleDict)
        return [one for child in module.children() for one in (self._first_called(child) if isinstance(child, lists) else [child])]

    def _runs(self, module, inputs, words):
        if not self.begun:
            self._call(module, inputs, words)

    def remove(self):
        undo, self._undo = self._undo, []
        for one in undo:
            one()
