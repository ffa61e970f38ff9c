"""Checks the batches that the model is trained on: the evidence of health/batch-facts.

Ids, labels and masks only of models that are called by keyword. Checks the first steps, later ones less and less often, and steps whose loss is
NaN or has jumped.
"""

import sys

from .._data.inputs import Inputs

_FIRST, _LONGEST = 8, 64  # the first _FIRST steps are checked on the CPU; then each power of two, and every _LONGEST-th step
_FEW = 64  # fewest labels that show a shift
_IDS, _MASKS = ("input_ids", "decoder_input_ids"), ("attention_mask",)
# Models whose names end in ForCausalLM do this too.
_SHIFTING = ("GPT2LMHeadModel", "GPT2DoubleHeadsModel", "OpenAIGPTLMHeadModel", "BertLMHeadModel")
FACTS = ("rows", "unlabelled_rows", "labelled_padding", "beyond_vocabulary", "shifted_labels", "non_finite")
_WORDS = {
    "unlabelled_rows": "rows have no valid label (all are -100): a micro-batch of such rows has the loss NaN",
    "labelled_padding": "labels are at positions that the attention mask excludes; expected -100 there",
    "beyond_vocabulary": "ids or labels are outside the vocabulary of the model",
    "shifted_labels": "all labels are already shifted by one token, and the model shifts labels again",
    "non_finite": "elements of the inputs are NaN or infinite",
}


def _vocabulary(model):
    embeddings = getattr(model, "get_input_embeddings", None)
    try:
        return embeddings().num_embeddings if embeddings is not None else None
    except Exception:  # a model without a configuration
        return None


def _classes(model):
    """Returns how many tokens the model's output distinguishes, or None."""
    head = getattr(model, "get_output_embeddings", None)
    try:
        return head().out_features if head is not None else None
    except Exception:  # a model without such a layer
        return None


def _shifts(model):
    """Returns whether its forward compares the logits with the next label, as causal models of transformers do."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    name = type(inner).__name__
    return (name.endswith("ForCausalLM") or name in _SHIFTING) and type(inner).__module__.startswith("transformers.")


def _excluded(mask):
    """Returns where a mask excludes positions: it is 0 there, or negative if it is added to scores."""
    negative = mask < 0
    zero = mask == 0
    return negative if bool(negative.any()) or bool(zero.all()) else zero


class Batches:
    """The batches of one watch."""

    def __init__(self, run, model):
        self._run, self._model, self._vocabulary, self._shifts = run, model, _vocabulary(model), _shifts(model)
        self._classes = _classes(model)
        self._counts, self._inputs, self._words, self._seen = {}, (), {}, False
        self._floats, self._scales, self._constants = Inputs(), {}, {}  # the last two are of this step
        self._step, self._reported = None, set()
        self._looked, self._next = None, 0  # the step that was checked last, and the next one
        self._shifted = 0  # labels so far that equal the token after their own

    def due(self, step, on_cpu):
        first = _FIRST if on_cpu else 2
        if step < first or step == self._looked:
            return True
        due = step >= self._next
        if due:
            doubled, later = 1 << step.bit_length(), step // _LONGEST * _LONGEST + _LONGEST
            self._looked, self._next = step, min(doubled, later) if on_cpu else doubled
        return due

    def keep(self, inputs, words):
        """Keeps the batch of a pass in a light step, because is_notable() may need it."""
        if inputs or words:
            self._inputs, self._words, self._seen = inputs, words or {}, False

    def begins(self, inputs, words):
        """Called before a forward pass that is trained on."""
        self._inputs, self._words, self._seen = inputs, words, False
        tensor = next((value for value in (*words.values(), *inputs) if hasattr(value, "is_cuda")), None)
        if tensor is not None and self.due(self._run._step, tensor.device.type == "cpu"):
            self._look(inputs, words)

    def is_notable(self):
        """Called if the loss of that pass is NaN, or has jumped."""
        if (self._inputs or self._words) and not self._seen:
            self._look(self._inputs, self._words)

    def _look(self, inputs, words):
        self._seen = True
        torch = sys.modules["torch"]
        with torch.no_grad():
            found = self._facts(torch, words)
            scales, constants, lost = self._floats.facts(inputs, words)
        if not scales and not lost and "rows" not in found:
            return
        if "rows" not in found:
            found["rows"] = len(next(value for value in inputs if torch.is_tensor(value) and value.dim() > 1))
        found["non_finite"] = lost
        if self._step != self._run._step:
            self._step, self._counts, self._scales, self._constants = self._run._step, {}, {}, {}
        for name, scale in scales.items():
            self._scales[name] = max(scale, self._scales.get(name, 0.0))
            self._constants[name] = min(constants.get(name, 0), self._constants.get(name, constants.get(name, 0)))
        for name, value in found.items():
            self._counts[name] = self._counts.get(name, 0) + int(value)
        if found.get("beyond_vocabulary"):  # the forward pass is about to fail
            self._record()
        for name, text in _WORDS.items():
            if found.get(name) and name not in self._reported:
                self._reported.add(name)
                print(f"plumbline: step {self._run._step}: {int(found[name])} {text}", file=sys.stderr)

    def _facts(self, torch, words):
        ids = next((words[n] for n in _IDS if torch.is_tensor(words.get(n)) and words[n].dim() == 2), None)
        labels, mask = words.get("labels"), next((words[n] for n in _MASKS if torch.is_tensor(words.get(n))), None)
        floats = [v for v in words.values() if torch.is_tensor(v) and v.is_floating_point() and v.dim() > 1]
        first = ids if ids is not None else floats[0] if floats else labels if torch.is_tensor(labels) else None
        if first is None or not first.dim():
            return {}
        counts = {"rows": len(first)}
        if ids is not None and self._vocabulary:
            counts["beyond_vocabulary"] = int(((ids < 0) | (ids >= self._vocabulary)).sum())
        if torch.is_tensor(labels) and not labels.is_floating_point() and labels.dim() == 2:
            counts.update(self._of_labels(ids, labels, mask))
            if self._classes:
                counts["beyond_vocabulary"] = counts.get("beyond_vocabulary", 0) + int((labels >= self._classes).sum())
        return counts

    def _of_labels(self, ids, labels, mask):
        """Returns the facts of labels with one value for each token."""
        counts = labels != -100
        facts = {"unlabelled_rows": int((~counts.any(dim=1)).sum())}
        if mask is not None and mask.shape == labels.shape:
            facts["labelled_padding"] = int((counts & _excluded(mask)).sum())
        if ids is None or ids.shape != labels.shape:
            return facts
        if self._shifts and labels.shape[1] > 1:
            counted = counts[:, :-1] & (ids[:, :-1] != ids[:, 1:])  # the labels for which the two interpretations differ
            number = int(counted.sum())
            self._shifted += number
            self._shifts = bool((labels[:, :-1] == ids[:, 1:])[counts[:, :-1]].all())  # one label that differs shows that labels are not shifted
            facts["shifted_labels"] = number if self._shifts and self._shifted >= _FEW else 0
        return facts

    def step_ends(self):
        """Records the result in the open step."""
        self._inputs, self._words = (), {}
        if self._step != self._run._step or not self._counts:
            return
        self._record()
        self._counts = {}

    def _record(self):
        for name in FACTS:
            if name in self._counts:
                self._run._own_scalar(f"batch_facts/{name}", self._counts[name])
        for name, scale in self._scales.items():
            self._run._own_scalar(f"batch_facts/scale:{name}", scale)
            if self._constants[name]:
                self._run._own_scalar(f"batch_facts/constant:{name}", self._constants[name])
