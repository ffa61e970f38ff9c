"""The arguments of a check, brought to one form."""

import torch

from .cuts import May, Suffixes, special_ids
from .rounding import embeddings
from .runs import modules_of
from .verdict import CausalityError

_IDS = ("decoder_input_ids", "input_ids", "tokens", "idx")
EXTRAS = ("batch", "documents", "labels", "length", "canary", "cache")


class Case:
    """A model, its tokens [B,S], and what is known of them."""

    def __init__(self, model, tokens, inputs=None, argument=None, output=None, documents=None, padding=None, allowed=None, lookahead=0,
                 vocabulary=None, labels=None, loss=None, extras=None, trials=64, budget_s=None, seed=0):  # fmt: skip
        self.model, self.which, self.seed, self.trials, self.budget = model, output, seed, trials, budget_s
        self.modules = modules_of(model)
        self.module = self.modules[0] if self.modules else None
        self.inputs, self.argument = dict(inputs or {}), argument
        tokens = self._of_dictionary(tokens)
        self.given_labels = self.inputs.pop("labels", None)
        self.labels = labels if labels is not None else self.given_labels if loss is None else None
        self.loss = loss
        self.tokens = self._checked(tokens)
        self.batch, self.length = self.tokens.shape
        self.padding = self._mask(padding, self.inputs.get("attention_mask"))
        self.documents = documents if documents is None else torch.as_tensor(documents).reshape(self.tokens.shape)
        if self.documents is None:
            self.documents = self._documents()
        self.may = May(self.length, allowed, lookahead, self.documents)
        self.vocabulary = vocabulary
        unknown = set(extras or ()) - set(EXTRAS)
        if unknown:
            raise CausalityError(f"extras: {', '.join(sorted(unknown))} is unknown; expected some of {', '.join(EXTRAS)}")
        self.extras = set(EXTRAS if extras is None else extras)

    def _of_dictionary(self, tokens):
        if not hasattr(tokens, "items"):
            return tokens
        items = dict(tokens.items())
        name = self.argument or next((one for one in _IDS if one in items), None)
        if name not in items:
            raise CausalityError(f"tokens: found a dictionary with {', '.join(map(str, items))}; expected input_ids, or name them with argument=")
        self.argument = name
        ids = items.pop(name)
        self.inputs = {**items, **self.inputs}
        return ids

    @staticmethod
    def _checked(tokens):
        if not torch.is_tensor(tokens):
            tokens = torch.as_tensor(tokens)
        if tokens.dim() == 1:
            tokens = tokens[None]
        if tokens.is_floating_point() or tokens.dim() != 2:
            raise CausalityError(f"tokens: expected integers of shape [B,S], found {str(tokens.dtype)[6:]} of shape {list(tokens.shape)}")
        if tokens.shape[1] < 2:
            raise CausalityError("tokens: expected sequences of at least 2 tokens")
        return tokens.detach().clone()

    def _mask(self, padding, attention):
        if padding is not None:
            return torch.as_tensor(padding).bool().to(self.tokens.device).reshape(self.tokens.shape)
        if torch.is_tensor(attention) and attention.shape == self.tokens.shape:
            return attention.to(self.tokens.device) == 0
        return torch.zeros_like(self.tokens, dtype=torch.bool)

    def _documents(self):
        """Returns the documents of position ids that begin again, or of cu_seqlens; None if there is only one each."""
        places = self.inputs.get("position_ids")
        if torch.is_tensor(places) and places.dim() == 2 and places.shape[1] == self.length:
            begins = torch.zeros_like(places, dtype=torch.long)
            begins[:, 1:] = (places[:, 1:] != places[:, :-1] + 1).long()
            rows = begins.cumsum(1).expand(self.batch, -1)
            return rows if bool(rows.any()) and not bool(self.padding.any()) else None
        for name in ("cu_seqlens", "cu_seq_lens_q", "cu_seqlens_q"):
            ends = self.inputs.get(name)
            if torch.is_tensor(ends) and self.batch == 1 and ends.numel() > 2:
                at = torch.arange(self.length, device=ends.device)
                return (torch.bucketize(at, ends[1:].to(at), right=True))[None]
        return None

    def ids(self):
        """Returns the number of token ids: of the embedding that looks up the tokens, else the largest id + 1."""
        if self.vocabulary:
            return int(self.vocabulary)
        own = getattr(self.module, "get_input_embeddings", None)
        try:
            return int(own().num_embeddings)
        except Exception:  # no model of transformers
            pass
        sizes = [one.weight.shape[0] for one in self._looked_up()]
        return max([int(self.tokens.max()) + 1, *sizes]) if not sizes else max(int(self.tokens.max()) + 1, min(sizes))

    def _looked_up(self):
        """Returns the embeddings that are called with the tokens."""
        found, hooks = [], []

        def hook(one, args):
            ids = args[0] if args else None
            if torch.is_tensor(ids) and ids.numel() == self.tokens.numel() and bool((ids.reshape(-1).sort()[0] == self.tokens.reshape(-1).sort()[0]).all()):
                found.append(one)

        for one in embeddings(self.module):
            hooks.append(one.register_forward_pre_hook(hook))
        try:
            with torch.no_grad():
                if self.argument is None:
                    self.model(self.tokens, **self.inputs)
                else:
                    self.model(**{self.argument: self.tokens}, **self.inputs)
        finally:
            for one in hooks:
                one.remove()
        return found

    def suffixes(self, ids):
        return Suffixes(self.tokens, ids, special_ids(self.module, ids), self.padding)
