"""How the experts of a router that is known are loaded, in the steps between those that hear all of it.

A router whose choice was heard to be the best k of its gate's own output, and that refused none, needs no listening
for that: the gate's output is enough. What goes into it is a few rows of many, so that it costs little anywhere.
"""

import sys
import weakref
from time import perf_counter

from .. import _routing
from .._kinds import KIND_ROUTING
from .._library import CAPTURING
from .._pace import Pace
from .._tensors import Scratch

_SHARE = 0.0025  # of a step's time, all routers together
_MEASURED_LATER = 4  # what a call costs in all, over its part here: the library counts on a thread of its own
_ROWS = 512  # tokens of a call
_NOT_ONLY_SCORES = ("expert_bias", "routing_map", "randomness", "policy")  # of observe_routing: other than the best k
_NO_TENSORS = ((None, None, 0, False),) * 9
_scratch = Scratch()


class Loads:
    """Of one router: from its gate's output, while that is known to be what it chooses by."""

    def __init__(self, found):
        alone = len(found.gates) == 1 and not found.limited
        self._gate, self._weight = (weakref.ref(found.gates[0][0]), found.gates[0][1]) if alone else (None, None)
        self._inner = weakref.ref(found.inner)
        self._experts = found.experts_count
        self._known = None  # what else is told of a call; None: not known to be so
        self._site = None

    @property
    def ready(self):
        return self._known is not None

    def listen(self, caught):
        """The gate's next outputs go to `caught`; a handle whose remove() ends that, or None."""
        gate = None if self._gate is None else self._gate()
        if gate is None:
            return None

        def keep(module, inputs, out):
            if sys.modules["torch"].is_tensor(out):
                caught.append((out, out._version))

        if gate is self._inner():  # a matrix of the router's own
            return _Products(getattr(gate, self._weight), keep)
        return gate.register_forward_hook(keep)

    def learn(self, known, caught):
        """From a call that was heard whole: `known` as of observe_routing."""
        self._known = None
        logits = self._scores(caught)
        if logits is None or any(name in known for name in _NOT_ONLY_SCORES) or known.get("topk_indices") is None:
            return
        torch, kept, whole = sys.modules["torch"], known.get("keep_mask"), known.get("router_logits")
        if kept is not None and not bool(kept.all()) or whole is None or logits.shape != whole.shape:
            return
        best = logits.topk(known["top_k"], dim=-1).indices
        same = torch.equal(best.sort(-1).values, known["topk_indices"].reshape(best.shape).sort(-1).values)
        if same and torch.equal(logits.to(whole.dtype), whole):
            self._known = [known.get(name) for name in ("top_k", "score_function", "mode")]

    def tell(self, run, name, caught):
        """Of some of the tokens, other ones each step."""
        logits = self._scores(caught)
        if logits is None:
            return
        if self._site is None:
            self._site = run._declare_site(KIND_ROUTING, name, "loads")
        if self._site is None:
            return
        stride, keep = -(-len(logits) // _ROWS), []
        rows, top_k, function, mode = logits[run._step % stride :: stride], *self._known
        packed = _routing.pack(_scratch, keep, rows, None, _NO_TENSORS, top_k, function, *(None,) * 8, mode)
        run._check(("loads", name), run._observe_routing(self._site, packed))

    def _scores(self, caught):
        """[T,E], if the gate ran once and nobody has written to what came of it."""
        if len(caught) != 1 or caught[0][0]._version != caught[0][1] or caught[0][0].shape[-1] != self._experts:
            return None
        return caught[0][0].detach().reshape(-1, self._experts)


class _Products:
    """Tells each product with one matrix, until remove()."""

    def __init__(self, weight, keep):
        torch = sys.modules["torch"]

        class Mode(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), options=None):
                out = function(*arguments, **(options or {}))
                if function is torch.nn.functional.linear and any(a is weight for a in arguments):
                    keep(None, arguments, out)
                return out

        self._mode = Mode()
        self._mode.__enter__()

    def remove(self):
        self._mode.__exit__(None, None, None)


class LoadsPace:
    """In which steps the routers of one model are asked, so that it stays a small share of the time."""

    def __init__(self):
        self._pace, self._spent = Pace(lambda: _SHARE), 0.0

    def due(self, step):
        return step < CAPTURING and self._pace.due(step)

    def spent(self, since):
        self._spent += perf_counter() - since

    def step_ends(self):
        if self._spent:
            self._pace.cost(_MEASURED_LATER * self._spent)
            self._spent = 0.0
        self._pace.step_began()
