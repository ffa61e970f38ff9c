"""A run whose calls all do nothing."""

from ._hooks import plain_hook
from ._kinds import NAMES
from ._reducing import NOTHING
from ._run import Run


class _NoContext:
    __slots__ = ("_value",)

    def __init__(self, value):
        self._value = value

    def __enter__(self):
        return self._value

    def __exit__(self, *_):
        return False


class NoRun(Run):
    """A run that does nothing: Plumbline is disabled, or its library is missing.

    refused: the trainer did not disable the run, so flush and finish return False.
    """

    def __init__(self, refused=False):  # does not call Run.__init__, on purpose: there is no library to keep loaded
        self._refused = refused
        self._context = _NoContext(self)

    def step(self, number):
        return self._context

    def begin_step(self, number=None):
        return None

    def end_step(self):
        return None

    def _following(self):
        return 0

    @property
    def should_stop(self):
        return False

    def _stops(self, step):
        return False

    def watch(self, model=None, optimizer=None, scaler=None, activations=None, causality=None, **_):
        return NOTHING

    def capturing(self, stream=None):
        return self._context

    def together(self):
        return self._context

    def observe_routing(self, layer, router_logits=None, **_):
        return None

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

    def watch_completeness(self, parameters, optimizer, limit=64, summed=None):
        return NOTHING

    def scalar(self, name, value):
        return None

    def _own_scalar(self, name, value):
        return None

    def span(self, kind, name=None):
        return self._context

    def pause(self, name=None):
        return self._context

    def flush(self, timeout=10.0):
        return not self._refused

    def finish(self, timeout=2.0):
        return not self._refused

    def _close(self, timeout=2.0):
        return not self._refused


def _nothing(self, layer, *_, **__):
    return None


for _name in NAMES.values():  # kinds whose methods are not named above
    if f"observe_{_name}" not in vars(NoRun):
        setattr(NoRun, f"observe_{_name}", _nothing)
