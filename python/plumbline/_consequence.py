"""leak_consequence: measures by how much a leaking router makes the loss look too low.

The loss of each token is given twice, with the same weights and on the same batch: under the routing that the model
trains with, and under a causal one. The report is the mean of the paired differences, with an interval over independent
units: sequences, or, if sequences compete for the same experts' places, the pools in which they compete. Tokens of one
sequence are not independent, and an interval over tokens would be several times too narrow.

With unit i of n_i tokens, sum of differences D_i, r = sum(D)/sum(n), e_i = D_i - r*n_i and N units, the standard error
is the delete-one jackknife's, sqrt((N-1)/N * sum((e_i / (n - n_i))^2)): that of the paired t-test if units are equally
long. Student's t has (N-1)/N * sum(w)^2/sum(w^2) degrees of freedom, w_i = (n_i / (n - n_i))^2 (Satterthwaite's, for
units whose tokens all move together; N-1 if they are equally long). Differences are skewed if only few units have large
ones, and Student's t then misses on one side. So each end of the interval is the wider one of Student's and of Hall's
transformation of Student's (On the removal of skewness by transformation, 1992: with g the skewness of the e_i and a =
g/sqrt(N), t becomes t + a*t^2/3 + a^2*t^3/27 + a/6).
"""

import math

from ._student import two_sided
from ._tensors import Unsupported, _flatten

TOO_LARGE = 1e100  # no loss is as large as this; its square would overflow
FEW = 10           # the fewest units with a difference; if fewer units differ and others do not, no interval reaches its level
NORMAL = 20        # number of units; if there are fewer, their differences must be near normal
BUCKETS = 8        # number of ranges of positions


class LeakConsequence:
    """The result of `leak_consequence` and `LeakMeter.result`. Losses in nats per token.

    difference       mean of loss(training routing) - loss(causal routing); negative: the model looks better
                     under the training routing than it is. None: nothing to compare
    interval         (low, high) that covers the expected difference at `level`, or None
    no_interval      why there is none, else None
    standard_error   of the difference, with the interval, else None
    level            of the interval
    training_loss, causal_loss   means over the same tokens
    tokens           that were compared: not padding, and finite under both routings
    moved_tokens     of them, those whose loss differs at all
    sequences        with at least one of these tokens
    unit, units      "sequence" or "pool": the kind of units that the interval takes as independent; their number
    moved_units      of them, those with a token that differs
    nonfinite        {"training": only under the training routing, "causal": only under the causal one,
                     "both"}: tokens left out because a loss was NaN, infinite or above 1e100
    by_position      list of {"from", "to" (inclusive), "tokens", "difference", "share"}: the mean over
                     a range of positions and its share of the whole difference (shares add to 1, and
                     may be negative; None if the whole is 0); empty without positions
    assumptions      list of texts
    text             a plain sentence
    """

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def __repr__(self):
        lines = [self.text]
        for part in self.by_position:
            share = "" if part["share"] is None else f", {100 * part['share']:.1f} % of it"
            lines.append(f"  positions {part['from']}-{part['to']}: {part['difference']:+.4f} over "
                         f"{part['tokens']} tokens{share}")  # fmt: skip
        lines += ["  assuming: " + assumption for assumption in self.assumptions]
        return "\n".join(lines)


# ---- the given losses ---------------------------------------------------------------------------


def _values(what, value):
    """Returns (shape, flat list) of a tensor of any library that has tolist(), or of nested lists."""
    if hasattr(value, "detach"):
        value = value.detach()
    shape, flat = [], []
    try:
        _flatten(value.tolist() if hasattr(value, "tolist") else value, 0, shape, flat)
    except Unsupported as error:
        raise ValueError(f"{what}: expected {error}") from None
    if not shape:
        raise ValueError(f"{what}: expected one loss per token (reduction='none'), found a single value")
    return shape, flat


def _column(what, value, count):
    _, flat = _values(what, value)
    if len(flat) != count:
        raise ValueError(f"{what}: expected one value per token, {count}, found {len(flat)}")
    return flat


def _columns(shape, count, sequence_id, position):
    """Returns ids: rows of [B,S] losses are sequences, and [T] losses are one, unless sequence_id and position are
    given."""
    if sequence_id is not None:
        where = None if position is None else _column("position", position, count)
        return _column("sequence_id", sequence_id, count), where
    if position is not None:
        raise ValueError("position without sequence_id: expected both, neither, or only sequence_id")
    if len(shape) > 2:
        raise ValueError(f"losses: expected shape [T] or [B,S] where sequence_id is not given, "
                         f"found {shape}")  # fmt: skip
    length = shape[-1]
    return [i // length for i in range(count)], [i % length for i in range(count)]


def _finite(loss):
    return abs(loss) <= TOO_LARGE  # false for NaN


def _components(sequences, pools):
    """Returns {sequence: unit}: sequences that share a pool, also indirectly, are one unit."""
    parent = {}

    def root(node):
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for sequence, pool in set(zip(sequences, pools)):
        parent[root(("sequence", sequence))] = root(("pool", pool))
    return {sequence: root(("sequence", sequence)) for sequence in set(sequences)}


# ---- the kept sums ------------------------------------------------------------------------------


class _Sum:
    """Tokens, how many of them differ, and the sum of their differences."""

    __slots__ = ("tokens", "moved", "difference")

    def __init__(self):
        self.tokens, self.moved, self.difference = 0, 0, 0.0

    def add(self, difference):
        self.tokens += 1
        self.moved += difference != 0
        self.difference += difference


class LeakMeter:
    """Collects the losses of several batches; memory grows with sequences, not with tokens.

        meter = plumbline.LeakMeter()
        for batch in held_out:
            with torch.no_grad():
                a, b = losses(model, batch, "training"), losses(model, batch, "causal")  # [B,S]
            meter.add(a, b, sequence_id=batch.document, position=batch.position,
                      padding_mask=batch.targets == -100, pool_id=batch.pool)
        print(meter.result())
    """

    def __init__(self):
        self._units, self._places, self._batches = {}, {}, 0
        self._sequences, self._training, self._causal = 0, 0.0, 0.0
        self._nonfinite = {"training": 0, "causal": 0, "both": 0}
        self._pooled = self._placed = None

    def add(self, loss_training_routing, loss_causal_routing, *, sequence_id=None, position=None,
            padding_mask=None, pool_id=None):  # fmt: skip
        """One batch. Ids count within it: the same id in another batch is another sequence or pool.

        loss_training_routing, loss_causal_routing
                       [T] or [B,S] floats: cross-entropy in nats, one a token, same weights and tokens
        sequence_id    as many integers; without it rows of [B,S] are sequences, and [T] is one
        position       as many integers, from 0 within the sequence
        padding_mask   as many bool: true is left out. Give it if a token has no target:
                       reduction='none' with ignore_index puts a loss of 0 there, which would count
        pool_id        as many integers: which rows compete for an expert's places. Sequences of one pool
                       are not independent; with it, pools and not sequences are the interval's units

        Raises ValueError if shapes do not agree; then nothing of the batch is counted.
        """
        shape, training = _values("loss_training_routing", loss_training_routing)
        other, causal = _values("loss_causal_routing", loss_causal_routing)
        if shape != other:
            raise ValueError(f"losses: expected one shape, found {shape} and {other}")
        count = len(training)
        sequences, places = _columns(shape, count, sequence_id, position)
        skip = [False] * count if padding_mask is None else _column("padding_mask", padding_mask, count)
        pools = None if pool_id is None else _column("pool_id", pool_id, count)
        kinds = (pools is not None, places is not None)
        if self._batches and kinds != (self._pooled, self._placed):
            raise ValueError("pool_id and position: expected with every batch, or with none")
        self._pooled, self._placed = kinds
        unit = None if pools is None else _components(sequences, pools)
        self._count(training, causal, sequences, places or [None] * count, skip, unit)
        self._batches += 1

    def _count(self, training, causal, sequences, places, skip, unit):
        seen = set()
        for a, b, sequence, place, out in zip(training, causal, sequences, places, skip):
            if out:
                continue
            if not (_finite(a) and _finite(b)):
                self._nonfinite["causal" if _finite(a) else "training" if _finite(b) else "both"] += 1
                continue
            seen.add(sequence)
            self._training += a
            self._causal += b
            key = (self._batches, sequence if unit is None else unit[sequence])
            for sums, name in ((self._units, key), (self._places, place)):
                if name not in sums:
                    sums[name] = _Sum()
                sums[name].add(a - b)
        self._sequences += len(seen)

    def result(self, level=0.99):
        """Returns a LeakConsequence of all batches so far. level: the confidence level of the interval, between 0 and
        1."""
        if not 0 < level < 1:
            raise ValueError(f"level is {level}; expected between 0 and 1")
        units = list(self._units.values())
        tokens = sum(u.tokens for u in units)
        mean = lambda total: total / tokens if tokens else None
        difference = mean(math.fsum(u.difference for u in units))
        unit = "pool" if self._pooled else "sequence"
        reason = _no_spread(units, unit, level)
        error, low, high = (None,) * 3 if reason else _ends(units, tokens, difference, level)
        found = LeakConsequence(
            difference=difference, level=level, standard_error=error, no_interval=reason,
            interval=None if reason else (low, high),
            training_loss=mean(self._training), causal_loss=mean(self._causal),
            tokens=tokens, moved_tokens=sum(u.moved for u in units), sequences=self._sequences,
            unit=unit, units=len(units), moved_units=_moved(units), nonfinite=dict(self._nonfinite),
            by_position=_by_position(self._places if self._placed else {}),
        )  # fmt: skip
        found.assumptions = _assumptions(found)
        found.text = _sentence(found)
        return found


# ---- the interval -------------------------------------------------------------------------------


def _moved(units):
    return sum(u.moved > 0 for u in units)


def _no_spread(units, unit, level):
    """Returns why these units have no interval, or None."""
    count, moved = len(units), _moved(units)
    if not count:
        return "no token has a finite loss under both routings"
    if count < 2:
        return f"one {unit} has no spread; expected 2 or more"
    if not moved:
        bound = -math.expm1(math.log1p(-level) / count)  # (1 - p)^N = 1 - level
        return (f"no loss differs, so there is no spread; at {_percent(level)} fewer than "
                f"{100 * bound:.3g} % of all {unit}s have one that does")  # fmt: skip
    if moved < min(FEW, count):
        return f"only {moved} of {count} {unit}s differ; expected all, or {FEW} or more"
    if len({u.difference / u.tokens for u in units}) == 1:
        return f"every {unit} differs by the same amount, so there is no spread"
    return None


def _ends(units, tokens, difference, level):
    """Returns (standard error, low end, high end) by the formulas above."""
    count = len(units)
    residuals = [(u.difference - difference * u.tokens) / (tokens - u.tokens) for u in units]
    shares = [(u.tokens / (tokens - u.tokens)) ** 2 for u in units]
    square = math.fsum(r * r for r in residuals)
    error = math.sqrt((count - 1) / count * square)
    freedom = (count - 1) / count * math.fsum(shares) ** 2 / math.fsum(s * s for s in shares)
    t = two_sided(max(1.0, freedom), level)
    scale = math.sqrt(square / count) or 1.0  # the root is 0 if the differences are near 1e-160, because their squares are 0
    skewness = math.fsum((r / scale) ** 3 for r in residuals) / count
    least, most = (_unskewed(x, skewness / math.sqrt(count)) for x in (-t, t))
    return error, difference - max(most, t) * error, difference - min(least, -t) * error


def _unskewed(x, a):
    """Returns the t with t + a*t^2/3 + a^2*t^3/27 + a/6 = x; the cubic is (1 + a*t/3)^3 - 1 over a."""
    if abs(a) < 1e-6:
        return x
    y = 1 + a * (x - a / 6)
    return 3 / a * (math.copysign(abs(y) ** (1 / 3), y) - 1)


def _by_position(places):
    """Returns ranges of whole positions with about equally many tokens each."""
    total, whole = sum(p.tokens for p in places.values()), math.fsum(p.difference for p in places.values())
    parts, seen = [], 0
    for place, part in sorted(places.items()):
        if not parts or seen >= len(parts) * total / BUCKETS:
            parts.append({"from": place, "tokens": 0, "difference": 0.0})
        seen += part.tokens
        parts[-1]["to"] = place
        parts[-1]["tokens"] += part.tokens
        parts[-1]["difference"] += part.difference
    for part in parts:
        part["share"] = part["difference"] / whole if whole else None
        part["difference"] /= part["tokens"]
    return parts


def _percent(level):
    return f"{100 * level:.10g} %"


def _assumptions(found):
    if not found.tokens:
        return []
    out = ["the difference includes the information of later tokens, and the effect of weights that were never trained "
           "under the causal routing; a causal model with the same switch shows the second effect"]
    left_out = sum(found.nonfinite.values())
    if left_out:
        out.append(f"the {left_out} excluded tokens are like the others")
    if found.no_interval:
        return out
    out.append(f"the {found.units} {found.unit}s are independent samples; the interval describes other "
               "text with these weights, not another training run")
    if found.unit == "sequence":
        out.append("no two sequences competed for one expert's places (else give pool_id)")
    if found.units < NORMAL:
        out.append(f"the mean differences of the {found.units} {found.unit}s are near normal")
    return out


def _sentence(found):
    nonfinite = found.nonfinite
    out = ""
    if any(nonfinite.values()):
        out = (f" Excluded as NaN or infinite: {nonfinite['training']} tokens under the training routing "
               f"only, {nonfinite['causal']} under the causal routing only, {nonfinite['both']} under "
               "both.")  # fmt: skip
    if not found.tokens:
        return "Nothing to compare: " + found.no_interval + "." + out
    size = f"{found.tokens} tokens of {found.sequences} sequences"
    if not found.moved_tokens:
        return (f"The two routings give the same loss, {found.training_loss:.4f} nats per token, to the "
                f"last bit in all {size} (no interval: {found.no_interval})." + out)  # fmt: skip
    lower = found.difference < 0
    text = (f"Under its training routing the model's loss is {abs(found.difference):.4f} nats per token "
            f"{'lower' if lower else 'higher'} than under causal routing ({found.training_loss:.4f} "
            f"against {found.causal_loss:.4f}, {size}")  # fmt: skip
    if found.no_interval:
        return f"{text}; no interval: {found.no_interval})." + out
    low, high = found.interval
    text += (f"; difference {found.difference:+.4f}, {_percent(found.level)} interval {low:+.4f} to "
             f"{high:+.4f} over {found.units} {found.unit}s)")  # fmt: skip
    if high < 0:
        return text + ": the reported loss is better by this difference than without that routing." + out
    if low > 0:
        return text + ": the reported loss is not better than without that routing." + out
    return text + ": the difference is within the noise." + out


def leak_consequence(loss_training_routing, loss_causal_routing, *, sequence_id=None, position=None,
                     padding_mask=None, pool_id=None, level=0.99):  # fmt: skip
    """The loss under the training routing minus the loss under causal routing, with an interval.

        print(plumbline.leak_consequence(loss_as_trained, loss_causal, sequence_id=document))

    The arguments are those of LeakMeter.add, which takes several batches. A pool of a batch is one unit, so with
    `pool_id` a single batch has an interval only if it holds two pools or more. Returns a LeakConsequence. Changes
    nothing and needs no library.
    """
    meter = LeakMeter()
    meter.add(loss_training_routing, loss_causal_routing, sequence_id=sequence_id, position=position,
              padding_mask=padding_mask, pool_id=pool_id)  # fmt: skip
    return meter.result(level)
