"""Finds modules that look like routers of a mixture of experts, by their contents, before they run."""

import sys
import types

_TOP = ("top_k", "topk", "k", "num_experts_per_tok", "num_experts_per_token", "num_selected_experts", "n_activated_experts",
        "experts_per_token", "moe_router_topk", "moe_top_k")  # fmt: skip
_COUNTS = ("num_experts", "n_experts", "num_local_experts", "n_routed_experts", "num_moe_experts", "nb_experts",
           "moe_num_experts", "expert_number")  # fmt: skip
_PLACES = ("expert_capacity", "capacity")
_FACTORS = ("capacity_factor", "moe_expert_capacity_factor", "train_capacity_factor", "eval_capacity_factor", "min_capacity",
            "moe_capacity_factor")  # fmt: skip
_WORDS = ("gate", "gating", "rout", "expert", "moe", "mixture", "switch", "wg")
_MOST = 4096  # the most experts


def attribute(modules, names, kind=int, config=True):
    """Returns the first number with one of these names, on the modules or their configuration; None if there is none."""
    for module in modules:
        for holder in (module, getattr(module, "config", None) if config else None):
            for name in names:
                value = getattr(holder, name, None) if holder is not None else None
                if isinstance(value, kind) and not isinstance(value, bool):
                    return value
    return None


def _limited(module):
    """Returns whether the module has an attribute about a capacity."""
    for holder in (module, getattr(module, "config", None)):
        for name, value in getattr(holder, "__dict__", {}).items():
            if "capacity" in name and isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                return True
    return False


class Found:
    """A router: `outer` holds the experts and `inner` the gate; they may be one module."""

    def __init__(self, name, inner, outer, experts_count):
        self.name, self.inner, self.outer, self.experts_count = name, inner, outer, experts_count
        self.gates = []  # (module, name of its weight)
        modules = self.modules = [inner] if inner is outer else [inner, outer]
        self.top_k = attribute(modules, _TOP)
        self.places = attribute(modules, _PLACES)
        if self.places is None and getattr(inner, "drop_tokens", None) is False:
            self.places = "none"
        self.limited = self.places != "none" and any(map(_limited, modules))
        self.drop_policy = next((p for p in (getattr(h, "moe_token_drop_policy", None) for m in modules
                                             for h in (m, getattr(m, "config", None))) if isinstance(p, str)), None)  # fmt: skip

    def weights(self):
        """Returns the current [(weight, E)]: sharding wrappers replace weights."""
        return [(getattr(module, name), self.experts_count) for module, name in self.gates]

    def kind(self):
        config = getattr(self.inner, "config", None)
        if any(hasattr(config, name) for name in ("moe_router_topk", "moe_token_drop_policy", "moe_expert_capacity_factor")):
            return "Megatron-like"
        if len(self.gates) > 1:
            return "noisy"
        if hasattr(self.inner, "wg"):
            return "DeepSpeed-like"
        if self.limited:
            return "Switch-like" if self.places is not None and self.places != "none" else "capacity-limited"
        return "Mixtral-like" if self.top_k is not None and self.experts() else "a gate"

    def words(self):
        taken = f"top-{self.top_k}" if self.top_k else "a choice"
        return f"{taken} of {self.experts_count}, {self.kind()} structure"

    def experts(self):
        """Returns {id of a weight: (its expert, which weight of it)}; a weight [E,..] of all experts has None."""
        torch, out = sys.modules["torch"], {}
        for module in self.modules:
            for held in _lists(module, self.experts_count):
                for number, expert in enumerate(held.values() if hasattr(held, "values") else held):
                    for name, p in expert.named_parameters():
                        out[id(p)] = (number, name)
            for name, p in module.named_parameters():
                if torch.is_tensor(p) and p.dim() == 3 and p.shape[0] == self.experts_count:
                    out.setdefault(id(p), (None, (name,)))
        return out


def _lists(module, count):
    """Returns lists of `count` experts among its children and their children."""
    torch = sys.modules["torch"]
    near = [*module.children(), *(c for child in module.children() for c in child.children())]
    for one in near:
        if isinstance(one, (torch.nn.ModuleList, torch.nn.ModuleDict)) and len(one) == count:
            held = list(one.values() if hasattr(one, "values") else one)
            if len({type(m) for m in held}) == 1 and any(True for _ in held[0].parameters()):
                yield one


def _holds_experts(module, count):
    if module is None:
        return False
    if attribute([module], _COUNTS) == count or any(True for _ in _lists(module, count)):
        return True
    return any(p.dim() == 3 and p.shape[0] == count for child in (module, *module.children())
               for p in child.parameters(recurse=False))  # fmt: skip


def _gates(module):
    """Returns (name, E, holder, weight's name) of possible gates: linear children, and matrices of its own."""
    for name, child in module.named_children():
        weight = getattr(child, "weight", None)
        count = getattr(child, "out_features", None)
        if isinstance(count, int) and getattr(weight, "dim", int)() in (1, 2) and not list(child.children()):
            yield name, count, child, "weight"
    for name, own in module._parameters.items():
        if own is not None and own.dim() == 2 and "bias" not in name:  # experts may be one tensor
            for count in {own.shape[0], own.shape[1]}:
                yield name, count, module, name


def _evidence(module, parent, gate, count):
    """Returns whether `count` outputs belong to experts. This needs two kinds of evidence, of which at most one is a
    name."""
    known = attribute([module], _COUNTS) == count or attribute([parent] if parent is not None else [], _COUNTS) == count
    listed = any(True for m in (module, parent) if m is not None for _ in _lists(m, count))
    fused = not listed and (_holds_experts(module, count) or _holds_experts(parent, count)) and not known
    top = attribute([module], _TOP, config=False)
    limited = attribute([module], _PLACES + _FACTORS, (int, float), config=False) is not None
    word = any(w in text.lower() for w in _WORDS for text in (gate, type(module).__name__))
    fits = top is not None and top <= count
    alone = {n for _, n, child, _ in _gates(module) if child is not module} == {count}  # a list of routers has only gates in it
    if known or listed or fused or limited:
        return sum((known, listed or fused, fits, limited, word)) >= 2
    declared = attribute([m for m in (module, parent) if m is not None], _COUNTS)
    return fits and word and alone and declared in (None, count)


def find(model):
    """Returns ([Found], [(name, why it cannot be hooked)])."""
    names = {id(m): name for name, m in model.named_modules()}
    parents = {id(child): m for m in model.modules() for child in m.children()}
    found, refused, heads = {}, [], _vocabularies(model)
    for module in model.modules():
        if type(module).__module__.startswith("torch.nn."):
            continue
        parent = parents.get(id(module))
        for gate, count, holder, weight in _gates(module):
            if not 2 <= count <= _MOST or not _evidence(module, parent, gate, count):
                continue
            if _is_head(module, parent, getattr(holder, weight), count, heads) or _by_table(module, count):
                continue
            if id(module) not in found:
                outer = parent if _outer(module, parent, count, found) else module
                found[id(module)] = Found(names[id(outer)] or type(outer).__name__, module, outer, count)
            if found[id(module)].experts_count == count:
                found[id(module)].gates.append((holder, weight))
    hooked = []
    for one in _outermost(found):
        why = next((w for w in map(_unhookable, one.modules) if w), None)
        (refused.append((one.name, why)) if why else hooked.append(one))
    return hooked, refused + [(name, why) for name, why in _hidden(model, names, found) if not _within(name, hooked)]


def _within(name, hooked):
    """Returns whether the module is inside of a found router, whose experts state their number themselves."""
    return any(name.startswith(f"{one.name}.") for one in hooked)


def _vocabularies(model):
    """Returns the shapes of embeddings: a module with the same shape is a head, with the vocabulary as output."""
    torch = sys.modules["torch"]
    shapes = {tuple(m.weight.shape) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    return shapes | {shape[::-1] for shape in shapes}


def _is_head(module, parent, weight, count, heads):
    """Returns whether the gate is the head of a small vocabulary, in a model with a configuration of experts. If there
    are as many experts as tokens, the outputs are experts only if the experts are listed."""
    if tuple(weight.shape) not in heads:
        return False
    return not any(True for m in (module, parent) if m is not None for _ in _lists(m, count))


def _by_table(module, count):
    """Returns whether the router's experts come from a table of token ids (DeepSeek-V4's first layers). No score
    decides, so there is no choice to judge."""
    tables = [b for _, b in module.named_buffers(recurse=False) if b.dim() == 2 and not b.is_floating_point() and not b.is_complex()]
    return any(table.shape[0] > count >= table.shape[1] for table in tables)


def _outermost(found):
    """If both a gate that is a router by itself and the layer that holds it were found, keeps the layer."""
    gates = {id(holder) for one in found.values() for holder, _ in one.gates if holder is not one.inner}
    return [one for one in found.values() if id(one.inner) not in gates]


def _outer(module, parent, count, found):
    """Returns whether the experts belong to the parent."""
    torch = sys.modules["torch"]
    if parent is None or type(parent).__module__.startswith("torch.nn.") or any(f.outer is parent for f in found.values()):
        return False
    own = any(True for _ in _lists(module, count)) or any(p.dim() == 3 for p in module.parameters(recurse=False))
    return not own and _holds_experts(parent, count) and not isinstance(parent, torch.jit.ScriptModule)


def _unhookable(module):
    torch = sys.modules["torch"]
    if isinstance(module, torch.jit.ScriptModule):
        return "it is compiled by TorchScript; watch the model before torch.jit.script"
    if isinstance(module.__dict__.get("forward"), (types.MethodType, types.FunctionType)):
        return "its forward was replaced on the instance; watch the model before that"
    if not hasattr(torch.overrides, "TorchFunctionMode"):
        return "torch before 1.13 cannot be observed; see observe_routing"
    return None


def _hidden(model, names, found):
    """Returns modules that hold experts and state how many, and in which no gate was found."""
    out, inside = [], {id(m) for f in found.values() for m in f.modules}
    for module in model.modules():
        held = {id(child) for child in module.modules()}
        count = attribute([module], _COUNTS, config=False)
        if count is None or count < 2 or held & inside or not any(True for _ in _lists(module, count)):
            continue
        why = f"it has {count} experts, but no gate of {count} outputs was found"
        out.append((names[id(module)] or type(module).__name__, why))
    return out
