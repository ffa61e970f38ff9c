"""The random generators: saved, restored, and drawn from by number; dropout at zero."""

import inspect
import random
import sys

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Dice:
    """The state of all generators when it was made."""

    def __init__(self):
        numpy = sys.modules.get("numpy")
        self._numpy = numpy if hasattr(numpy, "random") else None
        self._python, self._torch = random.getstate(), torch.get_rng_state()
        self._arrays = self._numpy.random.get_state() if self._numpy else None
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None

    def restore(self):
        random.setstate(self._python)
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        if self._numpy:
            self._numpy.random.set_state(self._arrays)


def seed_all(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if hasattr(numpy, "random"):
        numpy.random.seed(seed % 2**32)


_DRAWS = frozenset(
    "bernoulli bernoulli_ rand rand_like randn randn_like randint randint_like randperm normal normal_ uniform_ exponential_ cauchy_ "
    "geometric_ log_normal_ random_ multinomial native_dropout poisson binomial rrelu_with_noise normal_functional".split()
)


class Draws(TorchDispatchMode):
    """Records the shapes of random draws. With `pin`, each draw has a seed of its own: its call number."""

    def __init__(self, pin):
        super().__init__()
        self.shapes, self._pin = [], pin

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._schema.name.partition("::")[2] not in _DRAWS:
            return func(*args, **kwargs)
        if self._pin:
            torch.manual_seed(977 + len(self.shapes))
            if kwargs.get("generator") is not None:
                kwargs = {**kwargs, "generator": None}
        out = func(*args, **kwargs)
        first = out[0] if isinstance(out, tuple) else out
        self.shapes.append(tuple(first.shape))
        return out


_DROPOUTS = ("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "alpha_dropout_", "feature_dropout",
             "feature_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_")  # fmt: skip


class WithoutDropout(TorchFunctionMode):
    """Replaces the rate of each dropout of torch by 0. Other random draws stay."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in _DROPOUTS and (args or kwargs):
            return args[0] if args else kwargs["input"]
        if name in ("scaled_dot_product_attention", "multi_head_attention_forward"):
            args, kwargs = _without_rate(func, name, args, kwargs)
        return func(*args, **kwargs)


def _without_rate(func, name, args, kwargs):
    if name == "scaled_dot_product_attention":  # query, key, value, attn_mask, dropout_p
        if len(args) > 4:
            return (*args[:4], 0.0, *args[5:]), kwargs
        return args, {**kwargs, "dropout_p": 0.0}
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.arguments["dropout_p"] = 0.0
    return bound.args, bound.kwargs
