"""The state of modules: saved before the check, and restored before each forward pass and at the end."""

import collections

import torch

_APART = frozenset(["training", "_parameters", "_modules", "_buffers"])  # restored in another way
_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size)
_DEPTH = 6


def _is_hook(name):
    return "hook" in name


class State:
    """Parameters, buffers, and the tensors, containers and plain values that modules hold as attributes.

    Values are copied back in place, so tensors keep their storage and their aliases. Needs memory for one copy of all
    of them.
    """

    def __init__(self, modules):
        self._modules = list(modules)
        self._tensors, self._containers, self._generators, self._seen = [], [], [], set()
        for module in self._modules:
            for name in ("_parameters", "_buffers", "_modules"):
                self._container(vars(module)[name], 0, enter=name != "_modules")
            self._container(vars(module), 0)
        self._modes = [(module, module.training) for module in self._modules]
        self._grads = [(tensor, tensor.grad) for tensor, _ in self._tensors if tensor.is_leaf]
        self._replaced = {}  # tensors that the check itself has filled: their own values

    def _enter(self, value, depth):
        if isinstance(value, torch.Tensor):
            if id(value) not in self._seen:
                self._seen.add(id(value))
                self._tensors.append((value, value.detach().clone()))
        elif isinstance(value, torch.Generator):
            self._generators.append((value, value.get_state()))
        elif depth < _DEPTH and not isinstance(value, (*_PLAIN, torch.nn.Module, type)):
            if isinstance(value, (list, dict, set, collections.deque)):
                self._container(value, depth + 1)
            elif isinstance(value, (tuple, frozenset)):
                for one in value:
                    self._enter(one, depth + 1)
            elif self._is_holder(value):
                self._container(vars(value), depth + 1)

    @staticmethod
    def _is_holder(value):
        """Returns whether an object is one of the model's own helpers: a cache, a counter, a queue."""
        kind = type(value)
        outside = kind.__module__.partition(".")[0] in ("builtins", "torch", "numpy", "functools", "threading", "logging", "types")
        return hasattr(value, "__dict__") and not outside and not callable(value)

    def _container(self, value, depth, enter=True):
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        items = dict(value) if isinstance(value, dict) else list(value)
        self._containers.append((value, items))
        if enter:
            named = items.items() if isinstance(items, dict) else ((None, one) for one in items)
            for name, one in named:
                if not (isinstance(name, str) and (name in _APART or _is_hook(name))):
                    self._enter(one, depth)

    def restore(self):
        """Restores all but the modes, hooks and gradients."""
        for container, items in self._containers:
            self._put(container, items)
        with torch.no_grad():
            for tensor, saved in self._tensors:
                if tensor.shape != saved.shape or tensor.dtype != saved.dtype:
                    tensor.data = saved.clone()
                else:
                    tensor.data.copy_(saved)
        for generator, saved in self._generators:
            generator.set_state(saved)

    @staticmethod
    def _put(container, items):
        if isinstance(container, dict):
            if len(container) == len(items) and all(container.get(name, container) is value for name, value in items.items()):
                return
            for name in [one for one in container if one not in items]:
                if not (isinstance(name, str) and _is_hook(name)):
                    del container[name]
            container.update({n: v for n, v in items.items() if not (isinstance(n, str) and (n == "training" or _is_hook(n)))})
        elif isinstance(container, set):
            container.clear()
            container.update(items)
        elif isinstance(container, list):
            container[:] = items
        else:
            container.clear()
            container.extend(items)

    def fill(self, tensor, value):
        """From now on restore() gives `tensor` this value; put_back() gives it its own."""
        for at, (one, saved) in enumerate(self._tensors):
            if one is tensor:
                self._replaced[at] = saved
                self._tensors[at] = (one, value.to(saved))
                return

    def tensors(self):
        return [tensor for tensor, _ in self._tensors]

    def put_back(self):
        """Restores the model as it was when this was made."""
        for at, saved in self._replaced.items():
            self._tensors[at] = (self._tensors[at][0], saved)
        self.restore()
        for module, training in self._modes:
            module.training = training
        for tensor, grad in self._grads:
            tensor.grad = grad


def fill_zeros(module, state, seed):
    """Fills matrices and gains that are all zero, because nothing moves after them. Returns their names."""
    names, generator = [], torch.Generator().manual_seed(seed)
    for name, tensor in module.named_parameters():
        is_bias = tensor.dim() == 1 and "bias" in name.rpartition(".")[2]
        if is_bias or tensor.numel() == 0 or not tensor.is_floating_point() or bool(tensor.detach().count_nonzero()):
            continue
        spread = max(1, tensor.shape[-1]) ** -0.5 if tensor.dim() > 1 else 0.5
        state.fill(tensor, torch.randn(tensor.shape, generator=generator, dtype=torch.float64) * spread)
        names.append(name)
    return names
