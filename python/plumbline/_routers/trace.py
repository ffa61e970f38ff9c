"""Finds out how a router chooses, by the operations that it calls: from which tensor it takes the top-k, and over which axis.

A `Follower` gets each operation while one module that owns a gate runs. It follows the gate's output: the position of
the experts' axis, whether a row still depends only on its own token, whether it contains a mask of choices. It
computes only with copies of the trainer's tensors, and draws no random number.
"""

import functools
import sys
from time import thread_time_ns

from .nodes import (
    ALONG, CASTS, CONSTANTS, DRAWS, EARLY, IN_PLACE, LATE, OWN, PRODUCTS, TURNS, Choice, Node, axis_after, dim_of,
    keeps_rows, name_of, rows, tensors_of,
)  # fmt: skip

_MOST = 8  # the most events of one kind that are kept


class Follower:
    """Nodes, choices and the inputs of experts, in one forward pass of one router."""

    def __init__(self, gates, leaves, experts, top_k=None):
        """gates: (weight, E) pairs; leaves: stored tensors; experts: {id of a weight: its expert, or None if all
        experts share it}."""
        self.top_k = top_k
        self.torch = sys.modules["torch"]
        self.gates = {id(w): (w, e) for w, e in gates}
        self.leaves = {id(t): t for t in leaves}
        self.stored = [(t, t._version) for t in leaves]
        self.experts, self.first = experts, {}
        self.nodes, self.choices, self.drops, self.functions = {}, [], [], set()
        self.roots, self.entered, self.fed, self.early = [], None, [], False
        self.alike = False  # whether some tokens that entered are equal
        self.taken = []  # the choices that are recorded
        self.counts = False  # whether the router counts positions among the tokens: such a router may refuse some
        self.kept = []  # tensors that are kept alive, so that no other tensor gets their ids
        self.most = 1 << 24

    def note(self, func, args, kwargs, out):
        name, torch = name_of(func), self.torch
        given = list(tensors_of(args, torch)) + list(tensors_of(kwargs.values(), torch))
        for one in given:
            if id(one) not in self.nodes:
                self._view(one)
        known = [self.nodes[id(t)] for t in given if id(t) in self.nodes]
        held = [t for t in given if id(t) in self.gates]
        if held and name in PRODUCTS and torch.is_tensor(out):
            self._gate(held[0], given, out)
        elif not known:
            self._from_outside(name, args, given, out)
        elif name in PRODUCTS:
            self._product(given)
        elif name != "backward":
            self._from_nodes(name, args, kwargs, given, known, out)

    def _view(self, tensor):
        """Recognises a part of a known tensor: before torch 2.0 x[0] and x[:n] cannot be observed."""
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

    # ---- tensors that do not come from the gate --------------------------------------------------

    def _from_outside(self, name, args, given, out):
        torch = self.torch
        held = [t for t in given if id(t) in self.gates]
        if name in TURNS or name in CASTS:
            if held and torch.is_tensor(out):
                self.gates[id(out)] = (out, self.gates[id(held[0])][1])
            weight = next((t for t in given if id(t) in self.experts), None)
            if weight is not None and torch.is_tensor(out):
                self.experts[id(out)] = self.experts[id(weight)]
                self.kept.append(out)
        if name in PRODUCTS:
            return self._product(given)
        if (name in DRAWS or name in CONSTANTS) and torch.is_tensor(out) and out.numel() <= self.most:
            self.nodes[id(out)] = Node(out, None, name, own=True, drawn=self._noise(name))
        elif given and torch.is_tensor(out) and all(id(t) in self.leaves for t in given) and name in OWN | CASTS:
            self.leaves[id(out)] = out  # the result depends only on stored numbers
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
        """Returns [T,E] as the gate's output, or None."""
        for root in self.roots:
            if root.unchanged() and root.tensor.numel() == like.numel():
                return rows(root)
        return None

    def _product(self, given):
        """Handles an expert's first product: its other operand is the expert's input."""
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

    # ---- tensors that come from the gate ----------------------------------------------------------

    def _from_nodes(self, name, args, kwargs, given, known, out):
        scored = [n for n in known if n.axis is not None]
        main = scored[0] if scored else known[0]
        dim = dim_of(name, args, kwargs) if name in ALONG else None
        if name == "sigmoid" or (name == "softmax" and not _across(main, dim)):
            self.functions.add(name)
        choice = self._chosen(name, args, kwargs, main, dim, out) if scored else None
        if name == "setitem" and id(args[0]) in self.nodes:
            out = args[0]
        parts = out if isinstance(out, tuple) else (out,)
        for place, part in enumerate(parts):
            if not self.torch.is_tensor(part) or part.numel() > self.most or part is main.tensor and name not in IN_PLACE:
                continue
            node = self._derived(name, args, kwargs, given, known, main, dim, part)
            if choice is not None and (place == 1 or len(parts) == 1):
                node.pick, node.axis = choice, None
            self.nodes[id(part)] = node
        return None

    def _derived(self, name, args, kwargs, given, known, main, dim, out):
        axis = axis_after(name, args, kwargs, main, out) if main.axis is not None else None
        own = all(n.own for n in known) and self._stays_own(name, main, dim, out)
        own = own and all(id(t) in self.nodes or id(t) in self.leaves or t.dim() == 0 for t in given)
        node = Node(out, axis, name, main, own, max(n.drawn for n in known))
        if name in CONSTANTS or name in DRAWS:  # the result depends only on the shape
            node.own, node.drawn = True, self._noise(name)
            return node
        self._masks(node, name, axis, dim, known, out)
        others = [t for t in given if t is not main.tensor]
        stored = others[0] if len(others) == 1 and id(others[0]) in self.leaves else None
        if name in ("add", "radd", "iadd") and stored is not None and stored.numel() == out.shape[-1]:
            node.op, node.leaf = "add", stored
        elif (others and name != "type_as") or (name == "softmax" and _across(main, dim)):
            node.op = "mixed:" + name
        if name == "cumsum" and node.mask:
            self.counts = True
            self._drop(name, None, dim, main)
        return node

    def _masks(self, node, name, axis, dim, known, out):
        """Sets whether the node is a mask of choices, with or without scores in it, or still the indices of a
        choice."""
        picked = next((n.pick for n in known if n.pick is not None), None)
        node.mask = any(n.mask for n in known)
        if picked is not None and name in ("one_hot", "scatter", "scatter_add"):
            node.mask = True
            if name == "one_hot":
                node.axis = out.dim() - 1
            elif axis is None and dim is not None:
                node.axis = dim % out.dim()
        elif picked is not None and not out.is_floating_point() and name not in ("eq", "ne", "lt", "gt", "le", "ge"):
            node.pick = picked
            self._sliced(name, picked, out)
        scores = [n for n in known if not n.mask and n.pick is None and n.tensor.is_floating_point() and n.op not in CONSTANTS]
        node.valued = any(n.valued for n in known) or (node.mask and bool([n for n in scores if n.op not in DRAWS]))

    def _noise(self, name):
        """Noise after a choice is not part of the scores from which it was taken."""
        return 0 if name not in DRAWS else LATE if self.choices else EARLY

    def _sliced(self, name, choice, out):
        """A slice of a sort, or of a larger top-k, shows how many experts were taken."""
        if name == "getitem" and out.dim() == choice.indices.dim():
            short = [d for d in range(out.dim()) if out.shape[d] != choice.indices.shape[d]]
            if short == [choice.dim] and (choice.whole or out.shape[choice.dim] == self.top_k):
                choice.indices, choice.count, choice.whole = out.detach().clone(), out.shape[choice.dim], False

    def _stays_own(self, name, main, dim, out):
        if name in OWN:
            return True
        if name in TURNS:
            return main.axis is not None  # if the axis is not known, the order of the tokens is not known
        if name in CASTS:  # the operation must keep rows as rows
            return keeps_rows(main, out)
        if name in ALONG:
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
        if any(t._version != version for t, version in self.stored):
            choice.facts["captured"] = "after"  # this pass itself changed a bias
        if not choice.facts["own"]:  # values that a row got from other rows are not its own scores
            plain = self.gate_logits(choice.facts["logits"])
            choice.facts.update(logits=plain, function=None, bias=None, drawn=False, scored=True)
        self.choices.append(choice)
        return choice

    def _drop(self, name, count, dim, node):
        if dim is not None and node.axis is not None and len(self.drops) < _MOST:
            dim %= node.tensor.dim()
            if dim != node.axis:
                self.drops.append((name, count, dim, tuple(node.tensor.shape), node.axis, node.valued, node.drawn == LATE))


def _across(main, dim):
    """Returns whether a softmax runs over another axis than the experts'."""
    return main.axis is not None and (dim is None or dim % main.tensor.dim() != main.axis)


def listener(follower, charge):
    """Returns a context in which `follower` gets every operation, and the trainer's results are torch's own."""
    return _listener()(follower, charge)


@functools.lru_cache(maxsize=1)
def _listener():
    """All followers share one class: then code that torch.compile made inside of one instance is valid inside of the
    next."""
    class Listener(sys.modules["torch"].overrides.TorchFunctionMode):
        broken = None

        def __init__(self, follower, charge):
            super().__init__()
            self._follower, self._charge = follower, charge

        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            out = func(*args, **kwargs)
            if self.broken is None:
                began = thread_time_ns()
                try:
                    self._follower.note(func, args, kwargs, out)
                except Exception as error:  # no error of this package may end the trainer's step
                    self.broken = error
                self._charge(thread_time_ns() - began)
            return out

    return Listener
