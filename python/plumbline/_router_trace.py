"""What a router really did, by the operations that it called: of what was top-k taken, over which axis?

A `Trace` listens while one module that owns a gate runs. It follows what comes out of the gate: where the
experts' axis lies, whether a row still depends on its own token alone, whether a mask of choices is in it.
It never computes with the trainer's tensors but on copies, and draws no random number.
"""

import sys

_CASTS = {"to", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone", "detach", "view",
          "reshape", "flatten", "squeeze", "unsqueeze", "requires_grad_", "alias", "unflatten"}  # fmt: skip
_TURNS = {"t", "T", "mT", "transpose", "permute", "movedim", "swapaxes", "adjoint"}
_OWN = {"add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "truediv", "rsub", "radd", "rmul", "rtruediv",
        "neg", "exp", "log", "log1p", "softplus", "tanh", "relu", "gelu", "silu", "leaky_relu", "pow", "sqrt", "rsqrt", "square",
        "abs", "clamp", "clamp_min", "clip", "where", "masked_fill", "eq", "ne", "gt", "ge", "lt", "le", "logical_not", "logical_and",
        "logical_or", "bool", "int", "long", "invert", "and", "or", "expand", "expand_as", "one_hot", "dropout", "sign", "minimum",
        "maximum", "nan_to_num", "addcmul", "isfinite", "sigmoid", "logsigmoid", "iadd", "imul", "isub", "itruediv"}  # fmt: skip
_ALONG = {"softmax": 1, "log_softmax": 1, "sum": 1, "mean": 1, "amax": 1, "amin": 1, "max": 1, "min": 1, "topk": 2, "sort": 1,
          "argsort": 1, "argmax": 1, "gather": 1, "scatter": 1, "scatter_add": 1, "cumsum": 1, "logsumexp": 1, "norm": 2,
          "normalize": 2}  # fmt: skip
_PRODUCTS = {"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "einsum", "rmatmul"}
_DRAWS = {"rand", "randn", "rand_like", "randn_like", "normal", "uniform", "exponential", "bernoulli", "rsample", "random"}
_CONSTANTS = {"zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "arange", "tensor", "new_zeros",
              "new_ones", "new_full", "as_tensor", "eye", "finfo", "new_tensor", "scalar_tensor"}  # fmt: skip
_MOST = 8  # events of a kind that are kept


class Node:
    """A tensor that comes from the gate. `axis`: the experts' one, None where there is none any more."""

    __slots__ = ("tensor", "axis", "own", "drawn", "mask", "valued", "pick", "op", "source", "leaf", "version",
                 "scored")  # fmt: skip

    def __init__(self, tensor, axis, op="", source=None, own=True, drawn=False):
        self.tensor, self.axis, self.op, self.source = tensor, axis, op, source
        self.own = own  # a row depends on its own token, stored numbers and noise alone
        self.drawn = drawn  # noise is in it
        self.mask = self.valued = False  # of choices; with scores in it
        self.pick = self.leaf = None  # the choice whose indices these are; the stored vector that was added
        self.scored = op in ("softmax", "sigmoid") or (source is not None and source.scored)
        self.version = tensor._version

    def unchanged(self):
        return self.tensor._version == self.version


class Choice:
    """One top-k, argmax or sort of a node. over_tokens: experts choose."""

    __slots__ = ("node", "indices", "count", "dim", "over_tokens", "whole", "op", "told", "layout")

    def __init__(self, node, indices, count, dim, op):
        self.node, self.indices, self.count, self.dim, self.op = node, indices, count, dim, op
        self.over_tokens = dim != node.axis
        self.whole = op in ("sort", "argsort")  # until a slice of it says how many
        self.layout = tuple(node.tensor.shape)
        self.told = explain(node)

    def known(self):
        return self.indices is not None and not self.whole


def explain(node):
    """(logits, score function, stored bias) of which a choice was taken: copies [T,E], and whether rows are tokens' own."""
    at, function, bias, captured = node, None, None, None
    while at.source is not None and at.unchanged():
        if at.op in _CASTS or at.op in _TURNS:
            at = at.source
        elif at.op in ("softmax", "sigmoid") and function is None:
            function, at = at.op, at.source
        elif at.op == "add" and at.leaf is not None and bias is None and function is None:
            bias, at = at.leaf, at.source
        else:
            break
    if not at.unchanged() or at.axis is None or (not at.own and at is not node):
        at, function, bias = node, None, None
    own = at.own and at.unchanged()
    if bias is not None:
        bias, captured = bias.detach().reshape(-1).clone(), "before"
    return {"logits": rows(at), "function": function, "bias": bias, "captured": captured, "own": own, "scored": at.scored, "drawn": at.drawn}


def rows(node, tensor=None):
    """[T,E], rows in the gate's order: a copy."""
    tensor = node.tensor if tensor is None else tensor
    turned = tensor.detach().movedim(node.axis, -1)
    return turned.reshape(-1, turned.shape[-1]).clone()


def _name(func):
    name = getattr(func, "__name__", "")
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", "")
    return name.strip("_")


def _tensors(values, torch):
    for value in values:
        if torch.is_tensor(value):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (one for one in value if torch.is_tensor(one))


def _axis_after(name, args, kwargs, source, out):
    """Where the experts' axis lies after an operation on `source`; None where it cannot be said."""
    axis, before, after = source.axis, source.tensor.shape, out.shape
    if axis is None or out.numel() != source.tensor.numel():
        return None
    if name in _TURNS:
        order = _turned(name, args, kwargs, len(before))
        if order is None or [d for d in order if d != axis] != sorted(d for d in order if d != axis):
            return None  # tokens changed places
        return order.index(axis)
    if tuple(before) == tuple(after):
        return axis
    if axis == len(before) - 1 and after and after[-1] == before[-1]:
        return len(after) - 1  # [B,S,E] as [T,E]
    if axis == 0 and after and after[0] == before[0]:
        return 0
    return None


def _turned(name, args, kwargs, dims):
    order = list(range(dims))
    if name in ("t", "T", "mT", "adjoint"):
        if dims < 2 or (name in ("t", "T") and dims != 2):
            return None
        order[-1], order[-2] = order[-2], order[-1]
        return order
    given = [a for a in args[1:] if not hasattr(a, "shape")] or list(kwargs.values())
    if len(given) == 1 and isinstance(given[0], (list, tuple)):
        given = list(given[0])
    if not all(isinstance(d, int) for d in given):
        return None
    given = [d % dims for d in given]
    if name == "permute":
        return given if len(given) == dims else None
    if len(given) != 2:
        return None
    if name == "movedim":
        order.insert(given[1], order.pop(given[0]))
    else:
        order[given[0]], order[given[1]] = order[given[1]], order[given[0]]
    return order


def _dim(name, args, kwargs):
    """The axis an operation runs along, or None: all, or not said as a number."""
    place = _ALONG[name]
    if "dim" in kwargs:
        value = kwargs["dim"]
    elif len(args) > place:
        value = args[place]
    else:
        value = -1 if name in ("topk", "sort", "argsort") else None
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class Follower:
    """Nodes, choices and what experts were given, of one forward pass of one router."""

    def __init__(self, gates, leaves, experts, top_k=None):
        """gates: (weight, E); leaves: stored tensors; experts: {id of a weight: its expert, or None: of all}."""
        self.top_k = top_k
        self.torch = sys.modules["torch"]
        self.gates = {id(w): (w, e) for w, e in gates}
        self.leaves = {id(t): t for t in leaves}
        self.experts, self.first = experts, {}
        self.nodes, self.choices, self.drops, self.functions = {}, [], [], set()
        self.roots, self.entered, self.fed, self.early = [], None, [], False
        self.kept = []  # so that no other tensor gets their ids
        self.most = 1 << 24

    def note(self, func, args, kwargs, out):
        name, torch = _name(func), self.torch
        given = list(_tensors(args, torch)) + list(_tensors(kwargs.values(), torch))
        for one in given:
            if id(one) not in self.nodes:
                self._view(one)
        known = [self.nodes[id(t)] for t in given if id(t) in self.nodes]
        held = [t for t in given if id(t) in self.gates]
        if held and name in _PRODUCTS and torch.is_tensor(out):
            self._gate(held[0], given, out)
        elif not known:
            self._from_outside(name, args, given, out)
        elif name in _PRODUCTS:
            self._product(given)
        elif name != "backward":
            self._from_nodes(name, args, kwargs, given, known, out)

    def _view(self, tensor):
        """A part of a tensor that is known: before torch 2.0 x[0] and x[:n] are not heard."""
        base = tensor._base if tensor._is_view() else None
        if base is None:
            return
        if id(base) in self.nodes:
            node = self.nodes[id(base)]
            self.nodes[id(tensor)] = self._derived("getitem", (), {}, [base], [node], node, None, tensor)
        elif id(base) in self.experts and id(tensor) not in self.experts:
            expert, top = self.experts[id(base)]
            if expert is None and tensor.shape == base.shape[1:]:  # experts in one tensor [E,..]
                expert = (tensor.storage_offset() - base.storage_offset()) // base.stride(0)
                self.experts[id(tensor)] = (expert, (top[0], expert))
                self.kept.append(tensor)

    # ---- what is not from the gate ---------------------------------------------------------------

    def _from_outside(self, name, args, given, out):
        torch = self.torch
        held = [t for t in given if id(t) in self.gates]
        if name in _TURNS or name in _CASTS:
            if held and torch.is_tensor(out):
                self.gates[id(out)] = (out, self.gates[id(held[0])][1])
            weight = next((t for t in given if id(t) in self.experts), None)
            if weight is not None and torch.is_tensor(out):
                self.experts[id(out)] = self.experts[id(weight)]
                self.kept.append(out)
        if name in _PRODUCTS:
            return self._product(given)
        if (name in _DRAWS or name in _CONSTANTS) and torch.is_tensor(out) and out.numel() <= self.most:
            self.nodes[id(out)] = Node(out, None, name, own=True, drawn=name in _DRAWS)
        elif given and torch.is_tensor(out) and all(id(t) in self.leaves for t in given) and name in _OWN | _CASTS:
            self.leaves[id(out)] = out  # made of stored numbers alone
        return None

    def _gate(self, weight, given, out):
        count = self.gates[id(weight)][1]
        if not out.dim() or out.shape[-1] != count or out.dim() < 2:
            return
        root = self.nodes[id(out)] = Node(out, out.dim() - 1, "gate")
        self.roots.append(root)
        self.most = max(1, 8 * out.numel())
        others = [t for t in given if t is not weight and t.dim() > 1 and t.is_floating_point()]
        if others and self.entered is None:
            self.entered = others[0].detach()

    def gate_logits(self, like):
        """[T,E] as they left the gate, or None."""
        for root in self.roots:
            if root.unchanged() and root.tensor.numel() == like.numel():
                return rows(root)
        return None

    def _product(self, given):
        """An expert's first product: its other operand is what the expert was given."""
        weight = next((t for t in given if id(t) in self.experts), None)
        if weight is None:
            return
        expert, top = self.experts[id(weight)]
        self.early = self.early or not self.roots
        if self.first.setdefault(expert, top) == top:
            for one in given:
                if one is not weight and one.is_floating_point() and one.dim() > 1:
                    self.fed.append((expert, one.detach()))
                    break

    # ---- what is from the gate --------------------------------------------------------------------

    def _from_nodes(self, name, args, kwargs, given, known, out):
        scored = [n for n in known if n.axis is not None]
        main = scored[0] if scored else known[0]
        dim = _dim(name, args, kwargs) if name in _ALONG else None
        if name in ("softmax", "sigmoid"):
            self.functions.add(name)
        choice = self._chosen(name, args, kwargs, main, dim, out) if scored else None
        if name == "setitem" and id(args[0]) in self.nodes:
            out = args[0]
        parts = out if isinstance(out, tuple) else (out,)
        for place, part in enumerate(parts):
            if not self.torch.is_tensor(part) or part.numel() > self.most or part is main.tensor and name not in _IN_PLACE:
                continue
            node = self._derived(name, args, kwargs, given, known, main, dim, part)
            if choice is not None and (place == 1 or len(parts) == 1):
                node.pick, node.axis = choice, None
            self.nodes[id(part)] = node
        return None

    def _derived(self, name, args, kwargs, given, known, main, dim, out):
        torch = self.torch
        axis = _axis_after(name, args, kwargs, main, out) if main.axis is not None else None
        own = all(n.own for n in known) and self._stays_own(name, main, dim, out)
        own = own and all(id(t) in self.nodes or id(t) in self.leaves or t.dim() == 0 for t in given)
        node = Node(out, axis, name, main, own, any(n.drawn for n in known))
        if name in _CONSTANTS or name in _DRAWS:  # of its shape alone
            node.own, node.drawn = True, name in _DRAWS
            return node
        picked = next((n.pick for n in known if n.pick is not None), None)
        node.mask = any(n.mask for n in known)
        if picked is not None and name in ("one_hot", "scatter", "scatter_add"):
            node.mask = True
            node.axis = out.dim() - 1 if name == "one_hot" else axis if axis is not None else dim % out.dim() if dim is not None else None
        elif picked is not None and not out.is_floating_point() and name not in ("eq", "ne", "lt", "gt", "le", "ge"):
            node.pick = picked
            self._sliced(name, picked, out)
        if node.mask and node.axis is None and known and any(n.mask and n.axis is not None for n in known):
            node.axis = next((_axis_after(name, args, kwargs, n, out) for n in known if n.mask and n.axis is not None), None)
        scores = [n for n in known if not n.mask and n.pick is None and n.tensor.is_floating_point() and n.op not in _CONSTANTS]
        node.valued = any(n.valued for n in known) or (node.mask and bool([n for n in scores if n.op not in _DRAWS]))
        others = [t for t in given if t is not main.tensor]
        if name in ("add", "radd", "iadd") and len(others) == 1 and id(others[0]) in self.leaves and others[0].numel() == out.shape[-1]:
            node.op, node.leaf = "add", others[0]
        elif others and name not in ("type_as",):
            node.op = "mixed:" + name
        if name == "cumsum" and node.mask:
            self._drop(name, None, dim, main)
        return node

    def _sliced(self, name, choice, out):
        """A slice says how many were taken: of a sort, of a top-k of more."""
        if name == "getitem" and out.dim() == choice.indices.dim():
            short = [d for d in range(out.dim()) if out.shape[d] != choice.indices.shape[d]]
            if short == [choice.dim] and (choice.whole or out.shape[choice.dim] == self.top_k):
                choice.indices, choice.count, choice.whole = out.detach().clone(), out.shape[choice.dim], False

    def _stays_own(self, name, main, dim, out):
        if name in _OWN or name in _TURNS:
            return True
        if name in _CASTS:  # rows stay rows
            return _keeps_rows(main, out)
        if name in _ALONG:
            where = len(main.tensor.shape) - 1 if main.axis is None else main.axis
            return dim is not None and main.tensor.dim() > 1 and dim % main.tensor.dim() == where
        return False

    def _chosen(self, name, args, kwargs, node, dim, out):
        counts = {"topk": args[1] if len(args) > 1 else kwargs.get("k"), "argmax": 1, "max": 1, "sort": 0, "argsort": 0}
        if name == "multinomial":
            counts[name], dim = (args[1] if len(args) > 1 else kwargs.get("num_samples")), node.axis
        if name not in counts or dim is None or (name == "max" and not isinstance(out, tuple)):
            return None
        if name in ("sort", "argsort") and not (kwargs.get("descending") or True in args[1:]):
            return None
        if name == "topk" and (kwargs.get("largest") is False or args[3:4] == (False,)):
            return None
        dim %= node.tensor.dim()
        if node.mask:
            if dim != node.axis:
                self._drop(name, counts[name], dim, node)
                return None
            if not node.own or node.tensor.dim() > 3:
                return None
        if len(self.choices) >= _MOST:
            return None
        indices = (out if self.torch.is_tensor(out) else out[1]).detach()
        if name in ("argmax", "max") and indices.dim() < node.tensor.dim():
            indices = indices.unsqueeze(dim)
        choice = Choice(node, indices.clone(), int(counts[name]), dim, name)
        if not choice.told["own"]:  # what a row was given from others is no score of its own
            plain = self.gate_logits(choice.told["logits"])
            if plain is not None:
                choice.told.update(logits=plain, function=None, bias=None, drawn=False, scored=True)
        self.choices.append(choice)
        return choice

    def _drop(self, name, count, dim, node):
        if dim is not None and node.axis is not None and len(self.drops) < _MOST:
            dim %= node.tensor.dim()
            if dim != node.axis:
                self.drops.append((name, count, dim, tuple(node.tensor.shape), node.axis, node.valued, node.drawn))


_IN_PLACE = _OWN | {"scatter", "scatter_add", "copy", "index_fill", "setitem", "normal", "uniform", "exponential"}


def _keeps_rows(main, out):
    """Whether a view leaves each row's numbers in a row."""
    if main.axis is None or main.axis != main.tensor.dim() - 1:
        return tuple(main.tensor.shape[:1]) == tuple(out.shape[:1])
    tokens, product = main.tensor.numel() // main.tensor.shape[-1], 1
    for size in out.shape:
        if product == tokens:
            break
        product *= size
    return product == tokens


def listener(follower, charge):
    """A context in which `follower` hears every operation, and the trainer's results are torch's own."""
    from time import thread_time_ns

    class Listener(sys.modules["torch"].overrides.TorchFunctionMode):
        broken = None

        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            out = func(*args, **kwargs)
            if self.broken is None:
                began = thread_time_ns()
                try:
                    follower.note(func, args, kwargs, out)
                except Exception as error:  # nothing of ours may end the trainer's step
                    self.broken = error
                charge(thread_time_ns() - began)
            return out

    return Listener()
