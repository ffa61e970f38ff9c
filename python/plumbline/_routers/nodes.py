"""Tensors that come from a router's gate, and the names of torch's operations that show how they are used."""

CASTS = {"to", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone", "detach", "view",
         "reshape", "flatten", "squeeze", "unsqueeze", "requires_grad", "alias", "unflatten"}  # fmt: skip
TURNS = {"t", "T", "mT", "transpose", "permute", "movedim", "swapaxes", "adjoint"}
OWN = {"add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "truediv", "rsub", "radd", "rmul", "rtruediv",
       "neg", "exp", "log", "log1p", "softplus", "tanh", "relu", "gelu", "silu", "leaky_relu", "pow", "sqrt", "rsqrt", "square",
       "abs", "clamp", "clamp_min", "clip", "where", "masked_fill", "eq", "ne", "gt", "ge", "lt", "le", "logical_not", "logical_and",
       "logical_or", "bool", "int", "long", "invert", "and", "or", "expand", "expand_as", "one_hot", "dropout", "sign", "minimum",
       "maximum", "nan_to_num", "addcmul", "isfinite", "sigmoid", "logsigmoid", "iadd", "imul", "isub", "itruediv"}  # fmt: skip
ALONG = {"softmax": 1, "log_softmax": 1, "sum": 1, "mean": 1, "amax": 1, "amin": 1, "max": 1, "min": 1, "topk": 2, "sort": 1,
         "argsort": 1, "argmax": 1, "gather": 1, "scatter": 1, "scatter_add": 1, "cumsum": 1, "logsumexp": 1, "norm": 2,
         "normalize": 2}  # fmt: skip
PRODUCTS = {"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "einsum", "rmatmul"}
DRAWS = {"rand", "randn", "rand_like", "randn_like", "normal", "uniform", "exponential", "bernoulli", "rsample", "random"}
CONSTANTS = {"zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "arange", "tensor", "new_zeros",
             "new_ones", "new_full", "as_tensor", "eye", "finfo", "new_tensor", "scalar_tensor"}  # fmt: skip
IN_PLACE = OWN | {"scatter", "scatter_add", "copy", "index_fill", "setitem", "normal", "uniform", "exponential"}
EARLY, LATE = 1, 2  # kinds of noise: drawn before the first choice, or after it


class Node:
    """A tensor that comes from the gate. `axis`: the experts' axis, None if it no longer has one."""

    __slots__ = ("tensor", "axis", "own", "drawn", "mask", "valued", "pick", "op", "source", "leaf", "version",
                 "scored")  # fmt: skip

    def __init__(self, tensor, axis, op="", source=None, own=True, drawn=0):
        self.tensor, self.axis, self.op, self.source = tensor, axis, op, source
        self.own = own  # whether each row depends only on the token of that row, on stored numbers and on noise
        self.drawn = drawn  # the kind of noise in the tensor: 0, EARLY or LATE
        self.mask = self.valued = False  # whether the tensor is a mask of choices; whether it contains scores
        self.pick = self.leaf = None  # the choice whose indices these are; the stored vector that was added
        self.scored = op in ("softmax", "sigmoid") or (source is not None and source.scored)
        self.version = tensor._version

    def unchanged(self):
        return self.tensor._version == self.version


class Choice:
    """One top-k, argmax or sort of a node. over_tokens: the experts choose tokens."""

    __slots__ = ("node", "indices", "count", "dim", "over_tokens", "whole", "op", "facts", "layout")

    def __init__(self, node, indices, count, dim, op):
        self.node, self.indices, self.count, self.dim, self.op = node, indices, count, dim, op
        self.over_tokens = dim != node.axis
        self.whole = op in ("sort", "argsort")  # true until a slice of the result shows the number of choices
        self.layout = tuple(node.tensor.shape)
        self.facts = explain(node)

    def known(self):
        return self.indices is not None and not self.whole


def explain(node):
    """Describes the tensor from which a choice was taken: logits [T,E], score function, stored bias; and whether each row depends only on its own
    token."""
    at, function, bias, captured, stored = node, None, None, None, None
    while at.source is not None and at.unchanged():
        if at.op in CASTS or at.op in TURNS:
            at = at.source
        elif at.op in ("softmax", "sigmoid") and function is None:
            function, at = at.op, at.source
        elif at.op == "add" and at.leaf is not None and bias is None and function is None:
            bias, stored, at = at.leaf, at.leaf, at.source
        else:
            break
    if not at.unchanged() or at.axis is None or (not at.own and at is not node):
        at, function, bias, stored = node, None, None, None
    own = at.own and at.unchanged()
    if bias is not None:
        bias, captured = bias.detach().reshape(-1).clone(), "before"
    return {"logits": rows(at), "function": function, "bias": bias, "stored": stored, "captured": captured, "own": own, "scored": at.scored,
            "drawn": at.drawn}  # fmt: skip


def rows(node, tensor=None):
    """Returns a copy as [T,E], with the rows in the gate's order."""
    tensor = node.tensor if tensor is None else tensor
    turned = tensor.detach().movedim(node.axis, -1)
    return turned.reshape(-1, turned.shape[-1]).clone()


def name_of(func):
    name = getattr(func, "__name__", "")
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", "")
    return name.strip("_")


def tensors_of(values, torch):
    for value in values:
        if torch.is_tensor(value):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (one for one in value if torch.is_tensor(one))


def axis_after(name, args, kwargs, source, out):
    """Returns the position of the experts' axis after an operation on `source`; None if it is not known."""
    axis, before, after = source.axis, source.tensor.shape, out.shape
    if axis is None or out.numel() != source.tensor.numel():
        return None
    if name in TURNS:
        order = turned(name, args, kwargs, len(before))
        if order is None or [d for d in order if d != axis] != sorted(d for d in order if d != axis):
            return None  # tokens have other places now
        return order.index(axis)
    if tuple(before) == tuple(after):
        return axis
    if axis == len(before) - 1 and after and after[-1] == before[-1]:
        return len(after) - 1  # [B,S,E] as [T,E]
    if axis == 0 and after and after[0] == before[0]:
        return 0
    return None


def turned(name, args, kwargs, dims):
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


def dim_of(name, args, kwargs):
    """Returns the axis along which an operation runs. Returns None if it runs along all axes, or if the axis is not a
    number."""
    place = ALONG[name]
    if "dim" in kwargs:
        value = kwargs["dim"]
    elif len(args) > place:
        value = args[place]
    else:
        value = -1 if name in ("topk", "sort", "argsort") else None
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def keeps_rows(main, out):
    """Returns whether a view keeps each row's numbers in a row."""
    if main.axis is None or main.axis != main.tensor.dim() - 1:
        return tuple(main.tensor.shape[:1]) == tuple(out.shape[:1])
    tokens, product = main.tensor.numel() // main.tensor.shape[-1], 1
    for size in out.shape:
        if product == tokens:
            break
        product *= size
    return product == tokens
