"""The accumulators of this trainer, which the probes observe.

Each can be kept in 16 bits, which is the fault to be found, or in fp32.
"""

import math

import torch


class Updates:
    """The optimizer's step, and the intended change of each parameter.

    With `master`, the optimizer works on fp32 copies, and the model's bf16 weights are roundings of them. Without, it
    works on the model's weights.
    """

    def __init__(self, model, kind, lr, master, beta2=0.999, eps=1e-8):
        self.kind, self.lr, self.beta2, self.eps = kind, lr, beta2, eps
        self.named = list(model.named_parameters())
        self.held = [p.detach().float().clone() if master else p for _, p in self.named]
        if kind == "adam":
            self.optimizer = torch.optim.Adam(self.held, lr=lr, betas=(0.9, beta2), eps=eps)
        else:
            self.optimizer = torch.optim.SGD(self.held, lr=lr)

    def step(self, probes):
        """Does one update. If `probes` watches it, reports it."""
        for held, (_, parameter) in zip(self.held, self.named):
            held.grad = parameter.grad.to(held.dtype)
        watched = [(name, held, held.detach().clone(), self._moment(held))
                   for held, (name, _) in zip(self.held, self.named) if probes.due("updates", name)]
        self.optimizer.step()
        for name, held, before, moment in watched:
            probes.update(name, before, held.detach(), self._intended(held), optimizer=self.kind,
                          lr=self.lr, gradient=held.grad, moment_before=moment,
                          moment_after=self._moment(held),
                          **({"beta2": self.beta2, "eps": self.eps} if moment is not None else {}))
        with torch.no_grad():
            for held, (_, parameter) in zip(self.held, self.named):
                if held is not parameter:
                    parameter.copy_(held)
                parameter.grad = None

    def _moment(self, held):
        state = self.optimizer.state.get(held, {})
        moment = state.get("exp_avg_sq")
        return None if moment is None else moment.clone()

    def _intended(self, held):
        """Returns the update in full precision, from the state after the step (Adam) or the gradient."""
        if self.kind == "sgd":
            return -self.lr * held.grad.double()
        state = self.optimizer.state[held]
        step = float(state["step"])
        mean = state["exp_avg"].double() / (1 - 0.9**step)
        scale = (state["exp_avg_sq"].double() / (1 - self.beta2**step)).sqrt() + self.eps
        return -self.lr * mean / scale


class Average:
    """An exponential moving average of the weights, kept in `dtype`."""

    def __init__(self, model, dtype, decay):
        self.decay = decay
        self.named = list(model.named_parameters())
        self.held = [p.detach().to(dtype, copy=True) for _, p in self.named]

    @torch.no_grad()
    def step(self, probes):
        for held, (name, parameter) in zip(self.held, self.named):
            site = f"{name}.ema"
            watched = probes.due("averages", site)
            before = held.clone() if watched else None
            held.lerp_(parameter.to(held.dtype), 1 - self.decay)
            if watched:
                intended = (1 - self.decay) * (parameter.double() - before.double())
                probes.update(site, before, held, intended, optimizer="ema", decay=self.decay)


class Accumulator:
    """The sum of the micro-batches' gradients, kept in `dtype`."""

    def __init__(self, model, dtype):
        self.named = list(model.named_parameters())
        self.sums = [torch.zeros_like(p, dtype=dtype) for _, p in self.named]

    def clear(self):
        for total in self.sums:
            total.zero_()

    @torch.no_grad()
    def add(self, probes):
        """Adds the parameters' gradients, and clears them."""
        for total, (name, parameter) in zip(self.sums, self.named):
            watched = probes.due("gradients", name)
            before = total.clone() if watched else None
            total.add_(parameter.grad.to(total.dtype))
            if watched:
                probes.sum(name, before, total, parameter.grad)
            parameter.grad = None

    @torch.no_grad()
    def hand_over(self, count):
        """Stores the mean over `count` micro-batches in the parameters' gradients."""
        for total, (_, parameter) in zip(self.sums, self.named):
            parameter.grad = (total / count).to(parameter.dtype)


def global_norm(parameters):
    """Returns the 2-norm over all gradients, summed in fp64."""
    return math.sqrt(sum(p.grad.double().square().sum().item() for p in parameters))
