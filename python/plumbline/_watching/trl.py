"""TRL's rollouts (GRPO, RLOO): the engine's and the trainer's log-probabilities of the same tokens, for the callback
of such a trainer.

TRL passes both to `_compute_loss`, together with the masks and advantages. The log-probabilities of the trainer's
model are the first result of `_get_per_token_logps_and_entropies` in it, unless the batch has those of the weights
that sampled it.
"""

import functools
import sys
import threading
from weakref import WeakKeyDictionary

_KINDS = (("trl.trainer.grpo_trainer", "GRPOTrainer"), ("trl.trainer.rloo_trainer", "RLOOTrainer"))
_LAYER = "policy"
_RANK = 2**40  # the most sequences of one rank

_local = threading.local()  # _local.heard: the values that the trainer's model computes inside of one loss
_state = WeakKeyDictionary()  # trainer -> _Rollouts
_undo, _users = [], 0


class _Rollouts:
    """The rollouts of one trainer."""

    def __init__(self):
        self.version, self.sequences = None, 0  # update number of the weights that sampled; sequences observed
        self.compared = False  # whether the reference was compared with the policy


def _session(trainer):
    """Returns the run of the trainer's PlumblineCallback, or None."""
    callbacks = getattr(getattr(trainer, "callback_handler", None), "callbacks", ())
    run = next((one.run for one in callbacks if type(one).__module__ == "plumbline.transformers"), None)
    return run if hasattr(run, "_step") else None


def _generate(plain):
    @functools.wraps(plain)
    def _generate_and_score_completions(self, *arguments, **options):
        result = plain(self, *arguments, **options)
        state = _state.setdefault(self, _Rollouts())
        if getattr(self.model, "training", True):
            loaded = getattr(self, "_last_loaded_step", None) if getattr(self, "use_vllm", False) else None
            state.version = self.state.global_step if loaded is None or loaded < 0 else loaded
        return result

    return _generate_and_score_completions


def _scored(plain):
    @functools.wraps(plain)
    def _get_per_token_logps_and_entropies(self, *arguments, **options):
        result = plain(self, *arguments, **options)
        if getattr(_local, "heard", False) is None:
            _local.heard = result
        return result

    return _get_per_token_logps_and_entropies


def _loss(plain):
    @functools.wraps(plain)
    def _compute_loss(self, model, inputs):
        run = _session(self)
        if run is None or not model.training:
            return plain(self, model, inputs)
        _local.heard = None
        try:
            result = plain(self, model, inputs)
            heard = _local.heard
        finally:
            _local.heard = False
        state = _state.setdefault(self, _Rollouts())
        try:
            if not state.compared:
                state.compared = True
                _compare(run, self, model)
            _observe(run, self, state, inputs, heard)
        except Exception as error:  # no error of this package may end the trainer's step
            run._warn_once(("trl", "rollouts"), f"TRL's rollouts: {error!r}")
        return result

    return _compute_loss


def _compare(run, trainer, model):
    """Checks whether the reference of the KL term is the policy itself."""
    reference = getattr(trainer, "ref_model", None)
    if reference is None or not getattr(trainer, "beta", 0):
        return
    held = {p.data_ptr() for p in reference.parameters() if p.numel()}
    shared = sum(p.requires_grad and p.data_ptr() in held for p in model.parameters() if p.numel())
    if shared:
        run._own_scalar("batch_facts/reference_is_policy", shared)
        print(f"plumbline: {shared} trained parameters are shared by the policy and its reference model: their KL divergence is always 0", file=sys.stderr)


def _mask(inputs, rollout):
    """Returns 1 for the tokens that were sampled and that have a value of the engine."""
    mask = inputs["completion_mask"]
    if inputs.get("tool_mask") is not None:
        mask = mask * inputs["tool_mask"]
    return mask if rollout is None else mask * (rollout == rollout)


def _observe(run, trainer, state, inputs, heard):
    """Records one micro-batch in the open step."""
    tokens = inputs.get("completion_ids")
    rollout, train = inputs.get("sampling_per_token_logps"), inputs.get("old_per_token_logps")
    entropies = None
    if train is None and heard is not None:
        train, entropies = heard[0], heard[1]
    if tokens is None or train is None or tuple(train.shape) != tuple(tokens.shape):
        return
    rows = len(tokens)
    first = run._ranks.taken[0] * _RANK + state.sequences
    state.sequences += rows
    advantages = inputs.get("advantages")
    if advantages is not None:
        advantages = advantages.detach().reshape(rows, -1).expand(tokens.shape).contiguous()
    top_k = getattr(trainer, "top_k", None)
    both = {} if rollout is None else {
        "rollout": rollout.detach(), "mode": "processed_logprobs", "temperature": float(trainer.temperature), "top_p": float(trainer.top_p or 1.0),
        "top_k": top_k if isinstance(top_k, int) and top_k > 0 else None, "source": "sampled",
        "versions": tokens.new_full(tokens.shape, state.version) if state.version is not None else None,
    }  # fmt: skip
    version = state.version if "old_per_token_logps" in inputs else trainer.state.global_step
    run.observe_logprobs(
        _LAYER, tokens, train=train.detach(), sequence_id=list(range(first, first + rows)), mask=_mask(inputs, rollout), advantages=advantages,
        train_entropy=None if entropies is None else entropies.detach(), train_version=version, **both,
    )  # fmt: skip


def hook():
    """Hooks the trainers until unhook() was called as often."""
    global _users
    _users += 1
    if _users > 1:
        return
    for home, name in _KINDS:
        kind = getattr(sys.modules.get(home), name, None)
        for method, make in (("_generate_and_score_completions", _generate), ("_get_per_token_logps_and_entropies", _scored), ("_compute_loss", _loss)):
            plain = kind.__dict__.get(method) if kind is not None else None
            if plain is not None:
                ours = make(plain)
                setattr(kind, method, ours)
                _undo.append((kind, method, plain, ours))


def unhook():
    global _users
    _users = max(0, _users - 1)
    while not _users and _undo:
        kind, method, plain, ours = _undo.pop()
        if kind.__dict__.get(method) is ours:
            setattr(kind, method, plain)
