"""Which module's own code lets a row follow a token that it must not see?"""

import re
from dataclasses import dataclass

from .trace import Tracer, differs

_MOST = 12  # culprits that are searched
_TESTED = 12  # culprits of which each is tested alone


@dataclass
class Culprit:
    """A call whose watched inputs agree and whose outputs differ. `place`: where in its own code; "" for all of it."""

    key: tuple
    place: str = ""

    def __str__(self):
        name, number = self.key
        words = (name or "the model itself") + (f", call {number + 1}" if number else "")
        return words + (f" ({self.place})" if self.place else "")


class Localiser:
    """Finds the culprits of leaks, in one arithmetic. `found`: [Culprit], in the order in which they were found."""

    def __init__(self, runs, suffixes, wide, tolerance):
        self._runs, self._wide, self._tolerance = runs, wide, tolerance
        self._tracer = Tracer(runs)
        self._tracer.learn(suffixes)
        self._base, _ = self._tracer.trace(runs.tokens, wide)
        self._kept = {}  # {key: outputs of the base run} of the culprits
        self._where = None
        self.found = []

    def add(self, tokens, where):
        """Adds the culprits that let rows of `where` (bool [B,S]) follow the replaced `tokens`, and that are not yet known."""
        self._tokens, self._where = tokens, where
        patches, new, known = {}, [], list(self.found)
        for one in known:
            self._patch(one.key, patches)
        for _ in range(max(0, _MOST - len(known))):
            root, _ = self._tracer.trace(tokens, self._wide, patches)
            one = self._descend(self._base, root, patches)
            if one is None:
                break
            new.append(one)
            self._patch(one.key, patches)
            if len(new) > 1 and self._alike(new, patches):
                break
        if new:
            self.found = known + self._needed(new, patches)

    # ---- descent -------------------------------------------------------------------------------

    def _differs(self, base, other, side):
        ours, theirs = (base.inputs, other.inputs) if side == "in" else (base.outputs, other.outputs)
        for at, (one, two) in enumerate(zip(ours, theirs)):
            axes = self._tracer.layouts.get((base.key, side, at))
            if axes is not None and differs(one, two, axes, self._where, self._tolerance):
                return True
        return False

    def _descend(self, base, other, patches):
        """Returns the first culprit at or below this call, or None."""
        last = None
        for ours, theirs in zip(base.children, other.children):
            if ours.key != theirs.key:
                return Culprit(base.key, self._after(last))
            if ours.key not in patches and self._differs(ours, theirs, "in"):
                return Culprit(base.key, f"own code, before {self._short(ours.key)}")
            if self._differs(ours, theirs, "out"):
                return Culprit(ours.key) if not ours.children else self._descend(ours, theirs, patches) or Culprit(ours.key)
            last = ours.key
        if base.key == ("", -1):
            return None
        return Culprit(base.key, self._after(last)) if self._differs(base, other, "out") else None

    def _after(self, last):
        return "" if last is None else f"own code, after {self._short(last)}"

    @staticmethod
    def _short(key):
        return key[0].rpartition(".")[2] or "the model"

    # ---- patches -------------------------------------------------------------------------------

    def _patch(self, key, patches):
        if key not in self._kept:
            _, captured = self._tracer.trace(self._runs.tokens, self._wide, capture={key})
            self._kept[key] = captured
        patches[key] = (self._kept[key], self._where)

    def _agrees(self, patches, inputs_of=()):
        """Returns whether the model's outputs agree, and the inputs of the calls `inputs_of`."""
        root, _ = self._tracer.trace(self._tokens, self._wide, patches)
        if any(self._differs(one, two, "out") for one, two in zip(self._base.children, root.children)):
            return False
        ours, theirs = ({one.key: one for one in self._calls(tree) if one.key in inputs_of} for tree in (self._base, root))
        return not any(key in theirs and self._differs(ours[key], theirs[key], "in") for key in ours)

    def _alike(self, found, patches):
        """Adds all calls whose names differ from a culprit's by numbers alone (the same module of each layer), if the
        outputs then agree. Returns whether they do."""
        kinds = {re.sub(r"\d+", "#", one.key[0]): one.place for one in found}
        if len(kinds) == len(found):
            return False
        more = [one.key for one in self._calls(self._base) if re.sub(r"\d+", "#", one.key[0]) in kinds and one.key not in patches]
        if not more:
            return False
        _, captured = self._tracer.trace(self._runs.tokens, self._wide, capture=set(more))
        wide = dict(patches)
        for key in more:
            self._kept[key] = {place: value for place, value in captured.items() if place[0] == key}
            wide[key] = (self._kept[key], self._where)
        if not self._agrees(wide):
            return False
        patches.update(wide)
        found += [Culprit(key, kinds[re.sub(r"\d+", "#", key[0])]) for key in more]
        return True

    def _calls(self, call):
        for one in call.children:
            yield one
            yield from self._calls(one)

    def _needed(self, found, patches):
        """Drops new culprits that reach neither the outputs nor another culprit once the others are patched. A later
        culprit's patch hides those before it, so its inputs are compared too."""
        if len(found) < 2 or not self._agrees(patches):
            return found
        kept, left = list(found), dict(patches)
        for one in found[:_TESTED]:
            without = {key: patch for key, patch in left.items() if key != one.key}
            if self._agrees(without, without):
                kept.remove(one)
                left = without
        return kept


def names_of(culprits):
    """Returns the culprits as text: the same module of many layers is one entry."""
    grouped = {}
    for one in culprits:
        pattern = re.sub(r"\d+", "#", str(one))
        grouped.setdefault(pattern, []).append(one)
    out = []
    for group in grouped.values():
        if len(group) < 3:
            out += [str(one) for one in group]
        else:
            out.append(f"{group[0]} and {len(group) - 1} more of the same kind, to {group[-1]}")
    return out
