"""check_causality: other sequences, packed documents, padding, labels, lengths, random tokens, caches."""

import plumbline
import pytest
import torch
import torch.nn.functional as F
from causality_parts import Attention, Experts, Model, Sums, seeded, tokens_of
from torch import nn

W = 16
CLEAN = "passed"


def rules(verdict):
    return [(one.rule.partition("/")[2], one.cause) for one in verdict.findings]


# ---- other sequences ----------------------------------------------------------------------------


class Mixed(nn.Module):
    """Adds the mean of the batch's rows at the same position."""

    def forward(self, x):
        return x + x.mean(0, keepdim=True)


def test_rows_that_follow_other_sequences():
    model = seeded(1, lambda: Model([Attention(W), Mixed()]))
    verdict = plumbline.check_causality(model, tokens_of(2))
    assert rules(verdict) == [("batch-influence", "other-sequences")] and verdict.level == "warning"
    assert verdict.modules == ["blocks.1.mixer"], verdict
    alone = plumbline.check_causality(model, tokens_of(2)[:1])
    assert alone.verdict == CLEAN and "one-sequence" in [one.id for one in alone.reasons]


# ---- packed documents ---------------------------------------------------------------------------

DOCUMENTS = torch.tensor([[0] * 7 + [1] * 9 + [2] * 8]).repeat(3, 1)


@pytest.mark.parametrize("masked", [True, False])
def test_packed_documents(masked):
    model = seeded(1, lambda: Model([Attention(W), Attention(W)]))
    call = lambda tokens: model(tokens, DOCUMENTS[: len(tokens), : tokens.shape[1]] if masked and tokens.shape[1] <= 24 and len(tokens) <= 3 else None)
    verdict = plumbline.check_causality(call, tokens_of(2), documents=DOCUMENTS)
    assert rules(verdict) == ([] if masked else [("packed-document-leak", "other-documents")]), verdict
    if not masked:
        assert verdict.level == "error" and len(verdict.modules) >= 1


def test_documents_of_position_ids_and_of_lengths():
    places = torch.cat([torch.arange(7), torch.arange(9), torch.arange(8)])[None]

    class Placed(Model):
        def forward(self, tokens, position_ids=None, cu_seqlens=None):
            return super().forward(tokens)

    model = seeded(1, lambda: Placed([Attention(W)]))
    for words in ({"position_ids": places}, {"cu_seqlens": torch.tensor([0, 7, 16, 24])}):
        verdict = plumbline.check_causality(model, tokens_of(2)[:1], inputs=words)
        assert rules(verdict) == [("packed-document-leak", "other-documents")], verdict


class Padded(Model):
    """Left padding. `masked`: the padding is hidden from the other rows."""

    masked = True

    def forward(self, tokens, attention_mask):
        documents = attention_mask if self.masked else torch.zeros_like(attention_mask)
        return super().forward(tokens, documents)


@pytest.mark.parametrize("masked", [True, False])
def test_padding_ids(masked):
    mask = torch.ones(3, 24, dtype=torch.long)
    mask[1, :6] = 0
    model = seeded(1, lambda: Padded([Attention(W)]))
    model.masked = masked
    verdict = plumbline.check_causality(model, tokens_of(2), inputs={"attention_mask": mask})
    assert rules(verdict) == ([] if masked else [("packed-document-leak", "padding")]), verdict


# ---- labels -------------------------------------------------------------------------------------


class Output(dict):
    logits = property(lambda self: self["logits"])


class Language(Model):
    """Takes labels as models of transformers do. fault: "double", "none", "sees"."""

    fault = None

    def forward(self, tokens, labels=None):
        logits = super().forward(tokens)
        if labels is None:
            return Output(logits=logits)
        if self.fault == "sees":
            logits = logits + 0.1 * F.one_hot(labels.clamp(min=0), logits.shape[-1])
        shift = {"double": 2, "none": 0}.get(self.fault, 1)
        n = logits.shape[1] - shift
        loss = F.cross_entropy(logits[:, :n].flatten(0, 1), labels[:, shift:].flatten())
        return Output(loss=loss, logits=logits)


@pytest.mark.parametrize("fault, cause", [(None, None), ("double", "shifted-twice"), ("none", "not-shifted"), ("sees", "labels-move-logits")])
def test_label_shift(fault, cause):
    model = seeded(1, lambda: Language([Attention(W)]))
    model.fault = fault
    verdict = plumbline.check_causality(model, tokens_of(2), labels="tokens")
    assert rules(verdict) == ([] if fault is None else [("label-shift", cause)]), verdict


def test_labels_that_the_data_have_shifted_already():
    model, tokens = seeded(1, lambda: Language([Attention(W)])), tokens_of(2)
    shifted = torch.cat([tokens[:, 1:], torch.full((3, 1), -100)], 1)
    assert rules(plumbline.check_causality(model, tokens, labels=shifted)) == [("label-shift", "shifted-twice")]
    own = lambda out, labels: F.cross_entropy(out["logits"].flatten(0, 1), labels.flatten())
    assert rules(plumbline.check_causality(model, tokens, labels=shifted, loss=own)) == []
    assert rules(plumbline.check_causality(model, tokens, labels=tokens, loss=own)) == [("label-shift", "not-shifted")]
    part = tokens.clone()
    part[:, :9] = -100  # a prompt without labels
    assert rules(plumbline.check_causality(model, tokens, labels=part)) == []


def test_labels_of_something_else_are_not_judged():
    model, tokens = seeded(1, lambda: Language([Attention(W)])), tokens_of(2)
    verdict = plumbline.check_causality(model, tokens, labels=tokens_of(9))
    assert verdict.verdict == CLEAN and "labels-differ" in [one.id for one in verdict.reasons]


# ---- lengths, random tokens, caches -------------------------------------------------------------


class ByLength(nn.Module):
    def forward(self, x):
        return x * (1 + 0.01 * x.shape[1])


def test_dependence_on_the_length_is_a_note():
    for parts in ([ByLength()], [Experts(W, "capacity-order")]):
        verdict = plumbline.check_causality(seeded(1, lambda: Model([Attention(W), *parts])), tokens_of(2)[:1])
        assert rules(verdict) == [("length-dependence", "input-length")] and verdict.level == "note" and verdict.verdict == CLEAN


class Knowing(nn.Module):
    """Logits that favour the next token of the input by `share` of the rows."""

    def __init__(self, share):
        super().__init__()
        self.embed, self.share = nn.Embedding(29, W), share

    def forward(self, tokens):
        seen = F.one_hot(tokens.roll(-1, 1), 29).float() * 4
        rows = torch.arange(tokens.shape[1]) < self.share * tokens.shape[1]
        return torch.where(rows[:, None], seen, torch.zeros_like(seen)) + 0 * self.embed(tokens).sum(-1, keepdim=True)


def test_canary():
    found = plumbline.check_causality(Knowing(0.9), tokens_of(2), extras={"canary"})
    assert ("random-token-canary", "better-than-chance") in rules(found)
    assert next(one for one in found.findings if one.rule.endswith("canary")).strength == "bounded"


def test_canary_does_not_accuse_models_that_are_sure_of_something():
    """A model that excludes some ids has a cross-entropy below log V on samples without these ids, in every tenth run."""
    for seed in range(30):

        class Sure(Model):
            def forward(self, tokens):
                return super().forward(tokens) - 30 * (torch.arange(29) == 5)

        verdict = plumbline.check_causality(seeded(1, lambda: Sure([Attention(W)])), tokens_of(seed, 1, 8), seed=seed, extras={"canary"})
        assert rules(verdict) == []


class Cached(nn.Module):
    """Attention with a cache of keys and values. fault: each step of decoding begins at position 0."""

    def __init__(self, fault=False):
        super().__init__()
        self.embed, self.place, self.qkv, self.head = nn.Embedding(29, W), nn.Embedding(64, W), nn.Linear(W, 3 * W), nn.Linear(W, 29)
        self.config, self.fault = type("Config", (), {"use_cache": True})(), fault

    def forward(self, input_ids, past_key_values=None, use_cache=False):
        past = 0 if past_key_values is None else past_key_values[0].shape[1]
        length = input_ids.shape[1]
        x = self.embed(input_ids) + self.place(torch.arange(length) + (0 if self.fault else past))
        q, k, v = self.qkv(x).chunk(3, -1)
        if past_key_values is not None:
            k, v = torch.cat([past_key_values[0], k], 1), torch.cat([past_key_values[1], v], 1)
        hidden = torch.arange(past + length)[None] > torch.arange(length)[:, None] + past
        out = (q @ k.transpose(1, 2)).masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return type("Out", (), {"logits": self.head(out), "past_key_values": (k, v)})()


def test_decoding_with_a_cache():
    good = plumbline.check_causality(seeded(1, Cached), tokens_of(2))
    assert good.verdict == CLEAN and any("decoding" in note for note in good.notes), good
    bad = plumbline.check_causality(seeded(1, Cached, True), tokens_of(2))
    assert rules(bad) == [("length-dependence", "cache")] and bad.level == "warning" and "step 1 of decoding (position 18)" in bad.message


def test_checks_can_be_chosen():
    model = seeded(1, lambda: Model([Sums(W), Mixed()]))
    assert plumbline.check_causality(model, tokens_of(2), extras=set()).verdict == "finding"  # it still separates the sequences
    with pytest.raises(plumbline.CausalityError, match="extras: colour is unknown"):
        plumbline.check_causality(model, tokens_of(2), extras={"colour"})
