"""Observations of the log-probabilities of rollouts and of the trainer for the same tokens. Observations inherits from this."""

from . import _pack
from ._kinds import KIND_LOGITS, KIND_LOGPROBS
from ._library import NO_STEP

_MOST_WAITING = 64 << 20  # the most bytes of calls that wait for the next step


def _copied(value):
    """Returns a copy of the value, and its bytes."""
    if hasattr(value, "detach"):
        value = value.detach().clone()
        return value, value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return list(value), 8 * len(value)
    return (value.copy(), value.nbytes) if hasattr(value, "nbytes") else (value, 0)


class Rollouts:
    """Calls of one run, which supplies `_observe` and `_unknown`."""

    def observe_logprobs(self, layer, tokens=None, rollout=None, train=None, sequence_id=None,
                         position=None, versions=None, mask=None, advantages=None,
                         rollout_entropy=None, rollout_varentropy=None, train_entropy=None,
                         train_varentropy=None, train_version=None, mode=None, temperature=None,
                         top_p=None, top_k=None, selection=None, kept_share=None, source=None,
                         rescore_k2=None, worker=None, turns=None, cached_tokens=None,
                         t_start=None, t_end=None, behaviour=None, **unknown):  # fmt: skip
        """Log-probabilities of sampled tokens: the engine's (rollout), the trainer's, or both.

        Columns [T] or [B, S]; sequence_id: the same number for a sequence on both sides, [T], [B, S] or [B] (one per
        row); position of a token in its sequence (None: in order). A process may send only its half: the halves are
        joined by id and position. Give values from before any mask or clipping. mask: 0 where a token is not judged.
        versions: optimizer updates in the weights that drew each token; train_version: optimizer updates in the weights
        that computed `train`. Entropies (nats) and varentropies (nats^2) are those of the distribution of the same
        side. behaviour: the trainer's own log-probabilities by the weights that drew each token, a third forward pass
        that splits d into staleness and numerics. mode "raw_logprobs" | "processed_logprobs": of the rollout's values;
        temperature, top_p, top_k: the sampler's. selection "all" | "filtered" (then kept_share, a lower bound on the
        share of sequences kept); cached_tokens of the prompt that a prefix cache served, t_start and t_end in seconds:
        one a sequence; source "sampled" | "rescored" (then rescore_k2). Of each call whole sequences are kept, the same
        on both sides, within the traffic budget. A call between two steps belongs to the step that opens next.
        """
        if unknown:
            return self._unknown("observe_logprobs", layer, unknown)
        columns = (
            tokens, sequence_id, position, mask, rollout, train, rollout_entropy,
             rollout_varentropy, train_entropy, train_varentropy, versions, advantages, turns,
             cached_tokens, t_start, t_end, train_version, top_k, temperature, top_p, kept_share, rescore_k2, mode, selection,
             source, worker, behaviour)  # fmt: skip
        if not self._waits(layer, columns):
            self._observe(KIND_LOGPROBS, layer, "logprobs", None, _pack.pack_logprobs, columns)

    def _waits(self, layer, columns):
        """Keeps a copy of a call between steps until the next step begins. Returns False if a step is open, or if too
        many bytes wait."""
        if self._light is not None:
            self._light.interrupted()
        if self._step != NO_STEP or self._kept is not None:
            return False
        try:
            copies = [_copied(column) for column in columns]
        except Exception:  # the call itself reports the error
            return False
        size = sum(size for _, size in copies)
        if self._waiting_bytes + size > _MOST_WAITING:
            return False
        self._waiting_bytes += size
        self._waiting.append((layer, tuple(copy for copy, _ in copies)))
        return True

    def _release_waiting(self):
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for layer, columns in waiting:
            self._observe(KIND_LOGPROBS, layer, "logprobs", None, _pack.pack_logprobs, columns)

    def observe_logits(self, layer, train=None, rollout=None, tokens=None, allowed=None, mode=None,
                       temperature=None, **unknown):  # fmt: skip
        """The trainer's and the rollout's logits [..., V] at the same positions.

        f32, f16 or bf16 (the two may differ), in host memory; -inf masks a token out. tokens: the sampled id of each
        row, below 0 where there is none. allowed [..., V]: 0 masks on both sides (a grammar). mode "raw_logits" |
        "processed_logits": of the rollout's logits; temperature: the sampler's. On captured steps up to 64 rows, drawn
        at random, are compared whole (at most 2^20 logits a side a call); in other steps only the call itself costs
        time.
        """
        try:
            if self._step < self._logits_words[layer][0]:
                return
        except (KeyError, TypeError):
            pass
        if unknown:
            return self._unknown("observe_logits", layer, unknown)
        self._observe(
            KIND_LOGITS, layer, "logits", (self._logits_words, layer), _pack.pack_logits,
            (train, rollout, tokens, allowed, mode, temperature),
        )  # fmt: skip
