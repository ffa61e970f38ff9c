"""Measures how the experts of a known router are loaded, in the steps between those that are observed completely.

A call that was observed completely shows which operation made the choice (choices.py), and which place of the router's
result shows the choices that were kept. Then these few tensors suffice. Of many rows only some are used, so that the
cost is small on every machine.
"""

import sys
import weakref
from time import thread_time

from .. import _routing
from .._compiled import is_compiled
from .._kinds import KIND_ROUTING
from .._library import CAPTURING
from .._pace import Pace
from .._tensors import Scratch
from .choices import Choices, recipe

_SHARE = 0.0025  # the share of a step's time that the loads of all routers may cost together
_PLANNED, _AHEAD = 4, 0.02  # arguments of Pace, large enough to find a fault in a short run on a fast machine
_EVERY = 8  # fewest steps between two measurements, if no budget governs them
_MEASURED_LATER = 4  # total cost of a call, divided by the cost on this thread: the library counts on its own thread
_OPERATION = 3e-6  # seconds that torch takes to report one operation (docs/measurements/watch.md)
_ROWS = 512  # the most tokens that are measured of a call
_scratch = Scratch()


class Loads:
    """Measures the loads of one router: which experts its tokens chose, and which of these experts refused them."""

    def __init__(self, found):
        gate = found.gates[0][0] if len(found.gates) == 1 else None
        self._gate = None if gate is None or gate is found.inner else weakref.ref(gate)
        self._found = found
        self._module = None  # the module whose forward is observed
        self._recipe = None  # None: the recipe is not known
        self._kept = None  # a Kept; None: the router has refused no choice
        self._refuses = False  # whether the router refuses choices, and Kept shows which
        self._bias, self._words = None, None
        self._site = None

    def ready(self, module):
        return self._recipe is not None and self._module() is module

    def listen(self):
        """Returns a Choices, the context of a call."""
        return Choices(self._found.experts_count, None if self._gate is None else self._gate())

    def begins(self):
        """Returns the stored bias. Reads it before the call, because the call may change it."""
        if self._bias is None:
            return None
        held = getattr(self._bias[0](), self._bias[1], None)
        return None if held is None else held.detach().reshape(-1).clone()

    # ---- learning from a call that was observed completely ----------------------------------------

    def learn(self, known, follower, heard, spans, outputs, outer):
        """known: the arguments of observe_routing. follower: the Follower of the same call. spans: positions in `heard` of the calls of the
        inner module. outputs: its results. outer: the module around all observed calls."""
        self._recipe, taken = None, follower.taken
        chosen, logits = known.get("topk_indices"), known.get("router_logits")
        if chosen is None or logits is None or "routing_map" in known or not self._learn_bias(known, taken):
            return
        if known.get("keep_mask") is None and (follower.counts or follower.drops):
            return  # the call does not show the refused choices
        if any(map(is_compiled, outer.modules())):
            return  # an observer around a compiled function may cause the function to be compiled again
        inner, recipe_of_choice = self._found.inner, None
        if inner is not outer and len(spans) == 1:
            recipe_of_choice = recipe(heard.between(*spans[0]), taken, chosen, logits)
        self._module = weakref.ref(inner if recipe_of_choice is not None else outer)
        recipe_of_choice = recipe_of_choice or recipe(heard, taken, chosen, logits)
        if recipe_of_choice is None or not self._learn_kept(known.get("keep_mask"), chosen, outputs, self._module() is inner):
            return
        self._recipe = recipe_of_choice
        self._words = {name: known.get(name) for name in ("top_k", "score_function", "mode", "randomness", "bias_captured",
                                                          "flatten")}  # fmt: skip

    def _learn_bias(self, known, taken):
        """Returns whether there is no bias, or the used bias is stored where later calls can read it."""
        self._bias, bias = None, known.get("expert_bias")
        if bias is None:
            return True
        stored = taken[0].facts.get("stored")
        if known.get("bias_captured") != "before" or stored is None:
            return False
        for module in self._found.modules:
            for name, one in (*module._parameters.items(), *module._buffers.items()):
                if one is not None and (one is stored or one is stored._base) and one.numel() == bias.numel():
                    self._bias = (weakref.ref(module), name)
                    return True
        return False

    def _learn_kept(self, kept, chosen, outputs, inner):
        """Returns whether the router refuses no choice, or its result shows which choices it kept."""
        torch, self._kept = sys.modules["torch"], None
        some = kept is not None and not bool(kept.all())
        if not some and not self._refuses and not self._found.limited:
            return True
        found = Kept.found(outputs, len(chosen), self._found.experts_count) if inner and kept is not None else None
        held = None if found is None else found.of(outputs, slice(None))
        if held is None or not torch.equal(held.gather(1, chosen), kept.bool()):
            self._refuses = False
            return False
        self._kept, self._refuses = found, self._refuses or some
        return self._refuses  # a map of the requested choices does not change until a token is refused

    # ---- measuring later calls -------------------------------------------------------------------

    def record(self, run, name, heard, bias, outputs, seen):
        """Records some of the tokens, different ones in each step. `seen`: [B,S] of the token ids."""
        torch, got = sys.modules["torch"], self._recipe.of(heard)
        if got is None or (bias is None) != (self._bias is None):
            return
        tokens = len(got[0])
        stride = max(1, -(-tokens // _ROWS))
        some = slice(run._step % stride, None, stride)
        logits, chosen, kept, position = got[0][some], got[1][some], None, None
        if self._kept is not None:
            kept = self._kept.of(outputs, some)
            if kept is None or kept.shape != logits.shape:
                return
            kept, position = kept.gather(1, chosen), self._positions(seen, tokens, some, chosen.device)
        # A row with a NaN has no choice of its own.
        chosen = chosen.masked_fill(torch.isnan(logits).any(dim=-1, keepdim=True), -1)
        if self._site is None:
            self._site = run._declare_site(KIND_ROUTING, name, "loads")
        if self._site is None:
            return
        tensors = (("expert_bias", bias, 1, False), ("topk_indices", chosen, 2, True), ("keep_mask", kept, 2, True),
                   *[("", None, 0, False)] * 3, ("position", position, 1, False), *[("", None, 0, False)] * 2)  # fmt: skip
        words, keep = self._words, []
        packed = _routing.pack(_scratch, keep, logits, None, tensors, words["top_k"], words["score_function"], *(None,) * 6,
                               words["randomness"], words["bias_captured"], words["mode"])  # fmt: skip
        run._check(("loads", name), run._observe_routing(self._site, packed))

    def _positions(self, seen, tokens, some, device):
        """Returns [T] positions within their sequences, if the complete call knew their order."""
        order = self._words["flatten"]
        if seen is None or order is None or seen[0] * seen[1] != tokens:
            return None
        row = sys.modules["torch"].arange(tokens, device=device)[some]
        return row // seen[0] if order == "seq-major" else row % seen[1]


class Kept:
    """The position in a router's result that shows which choices were kept. Finds it as kept.returned does, without
    reading from a GPU."""

    def __init__(self, places, requested, weights, experts):
        self._places, self._map, self._weights, self._experts = places, requested, weights, experts

    @classmethod
    def found(cls, outputs, tokens, experts):
        torch, requested, weights = sys.modules["torch"], None, None
        for number, one in enumerate(outputs):
            if one.dim() == 3 and tuple(one.shape[:2]) == (tokens, experts) and one.dtype is torch.bool:
                return cls(number, None, None, experts)
            if not one.dim() or one.shape[-1] != experts or one.numel() != tokens * experts:
                continue
            if one.is_floating_point():
                weights = number
            elif one.dtype is torch.bool or bool(((one == 0) | (one == 1)).all()):
                requested = number
        return None if requested is None else cls(None, requested, weights, experts)

    def of(self, outputs, some):
        """Returns [rows,E], or None if the result has another form."""
        torch, numbers = sys.modules["torch"], [n for n in (self._places, self._map, self._weights) if n is not None]
        if max(numbers) >= len(outputs):
            return None
        if self._places is not None:
            one = outputs[self._places]
            return one[some].any(dim=2) if one.dim() == 3 and one.dtype is torch.bool else None
        if any(not outputs[n].dim() or outputs[n].shape[-1] != self._experts for n in numbers):
            return None
        kept, *weights = [outputs[n].detach().reshape(-1, self._experts)[some] != 0 for n in numbers]
        if outputs[self._map].is_floating_point() or any(w.shape != kept.shape for w in weights):
            return None
        return kept & weights[0] if weights else kept


class LoadsPace:
    """Chooses the steps in which the routers of one model are measured, so that this stays a small share of the time."""

    def __init__(self, budget):
        self._pace, self._spent = Pace(_SHARE, planned=_PLANNED, ahead=_AHEAD), 0.0
        if not budget.governed:
            self._pace.every = max(_EVERY, budget.every)

    def due(self, step):
        return step < CAPTURING and self._pace.due(step)

    def spent(self, since, operations=0):
        self._spent += _MEASURED_LATER * (thread_time() - since) + _OPERATION * operations

    def step_ends(self):
        if self._spent:
            self._pace.cost(self._spent)
            self._spent = 0.0

    @property
    def every(self):
        return self._pace.every

    def follow(self, period, apart, step):
        """Called before step `step` of a governed run; a step takes `period` seconds."""
        self._pace.step_ended(period, apart, step)
