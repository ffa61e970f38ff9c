"""The value that an optimizer of torch intends to add to a parameter, in fp64, from its own state.

The formulas are those of torch.optim's documentation (SGD, Adam, AdamW, with AMSGrad, maximize and Nesterov). The
moments are taken as the optimizer stored them, so that only the addition to the weight is judged. The rounding of the
moments is judged separately, from moment_before and moment_after.
"""

import inspect
import sys


def kind_of(optimizer):
    """"sgd", "adam", "adamw", or None: another optimizer, or one with its own step."""
    optim = sys.modules["torch"].optim
    step = inspect.unwrap(type(optimizer).step)
    for kind, known in (("sgd", optim.SGD), ("adam", optim.Adam), ("adamw", optim.AdamW)):
        if step is inspect.unwrap(known.step):
            return kind
    return None


def _number(value):
    return float(value)  # an option may be a tensor


def _descent(gradient, group):
    return -gradient if group.get("maximize") else gradient


def _sgd(group, state, before, gradient):
    g = _descent(gradient, group) + _number(group["weight_decay"]) * before
    momentum = _number(group["momentum"])
    if momentum:
        buffer = state["momentum_buffer"]
        g = g + momentum * buffer if group["nesterov"] else buffer
    return -_number(group["lr"]) * g


def _adam(group, state, before, decoupled):
    beta1, beta2 = map(_number, group["betas"])
    step, lr = _number(state["step"]), _number(group["lr"])
    square = state["max_exp_avg_sq"] if group.get("amsgrad") else state["exp_avg_sq"]
    scale = (square / (1 - beta2**step)).sqrt() + _number(group["eps"])
    delta = -lr * (state["exp_avg"] / (1 - beta1**step)) / scale
    # Adam adds its decay to the gradient, and so to the moments.
    return delta - lr * _number(group["weight_decay"]) * before if decoupled else delta


def intended(kind, group, state, before, gradient):
    """Returns the update of some elements. `state`: after the step, of the same elements, except "step"; all fp64."""
    if kind == "sgd":
        return _sgd(group, state, before, gradient)
    return _adam(group, state, before, kind == "adamw")
