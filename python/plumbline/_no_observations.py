"""The observations of a run that does nothing."""

from ._hooks import plain_hook
from ._reducing import NOTHING


class NoObservations:
    """The same calls of a run that does nothing."""

    def observe_tensor(self, layer, x=None, **_):
        return None

    def observe_parameters(self, model, role="weight", replicas=None):
        return None

    def observe_update(self, layer, before=None, after=None, intended=None, **_):
        return None

    def observe_matmul(self, layer, a=None, b=None, d=None, **_):
        return None

    def observe_logits(self, layer, train=None, rollout=None, tokens=None, **_):
        return None

    def observe_logprobs(self, layer, tokens=None, **_):
        return None

    def due(self, layer, what="update"):
        return False

    def observe_accumulation(self, layer, before=None, after=None, addend=None, **_):
        return None

    def observe_reduction(self, name, inputs=None, output=None, **_):
        return None

    def reducing(self, name, tensor=None, **_):
        return NOTHING

    def observed(self, hook=None, name="gradients"):
        return plain_hook(hook)

    def sample_indices(self, name, count, **_):
        return None

    def watch_accumulation(self, parameters, limit=16):
        return NOTHING
