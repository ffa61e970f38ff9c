"""Rules of your own, for `plumb audit --rule-file FILE.py`. See docs/own_rules.md.

    from plumbline.rules import Rule

    class LossTooHigh(Rule):
        name = "loss-too-high"              # the rule's id is user/loss-too-high
        title = "the training loss is above 20"
        reads = ("loss", "train/loss")      # globs over the names (op) of series and sites

        def step(self, step):
            for value in step.scalars:
                if not value.value <= 20:   # NaN, too
                    yield self.finding(f"{value.op} is {value.value:g} in step {step.number}", op=value.op)

The audit makes one object of each rule per run, and calls `step` for each closed step that has something that the rule reads. `end` is called
once. Both return a verdict, several, or none. A rule must depend on its evidence alone: not on clocks, random numbers or other files.
"""

import base64
import struct

__all__ = ["Evidence", "Rule", "RunEnd", "Scalar", "Step", "tensor"]

LEVELS = ("note", "warning", "error")
MOST_TITLE = 70


class Scalar:
    """One rank's value of a series. `series` is its role ("loss", "gradient-norm", "rate", ...; docs/scalars.md), or "none"."""

    __slots__ = ("layer", "op", "rank", "series", "value")

    def __init__(self, layer, op, series, rank, value):
        self.layer, self.op, self.series, self.rank, self.value = layer, op, series, rank, value


class Evidence:
    """Other evidence of one rank. `data` has the fields of the message Evidence (proto/plumbline/v1/evidence.proto), by name."""

    __slots__ = ("call", "data", "layer", "op", "rank")

    def __init__(self, layer, op, rank, call, data):
        self.layer, self.op, self.rank, self.call, self.data = layer, op, rank, call, data


class Step:
    """A closed step: the evidence of all ranks, sorted by site, then by rank and call.

    `missing` holds ranks for which the step was closed without their evidence. `world_size` is 0 if it is not known.
    """

    __slots__ = ("attempt", "evidence", "missing", "number", "role", "run", "scalars", "world_size")

    def __init__(self, run, attempt, role, number, world_size, missing, scalars, evidence):
        self.run, self.attempt, self.role, self.number, self.world_size = run, attempt, role, number, world_size
        self.missing, self.scalars, self.evidence = missing, scalars, evidence

    def values(self, op, layer=None):
        """Returns {rank: value} of one series; the last value of a rank counts."""
        return {s.rank: s.value for s in self.scalars if s.op == op and (layer is None or s.layer == layer)}


class RunEnd:
    """The run at its end: its name, its first and last step, its ranks."""

    __slots__ = ("first", "last", "ranks", "run")

    def __init__(self, run, first, last, ranks):
        self.run, self.first, self.last, self.ranks = run, first, last, ranks


class Rule:
    """Base class of a rule. A subclass sets `name`, `title` and `reads`, and writes `step` or `end`, or both."""

    name = ""
    title = ""  # the fault in at most 70 characters, without numbers
    level = "warning"  # "note", "warning"; "error" only with `false_alarm`
    cause = ""  # the id of the cause; the rule's name if empty
    fix = ""  # what to do first
    reads = ("*",)
    false_alarm = None  # share of healthy runs with a finding, if you measured it

    _site = None  # default steps and ranks of a verdict; set by the audit

    def step(self, step):
        return None

    def end(self, run):
        return None

    def finding(self, explanation, *, title=None, layer="", op="", steps=None, ranks=None, level=None, cause=None, measured=None,
                measured_name="", unit="", threshold=None, witness=None, fix=None):
        """Returns a finding. Without `steps` and `ranks` it is on the present step and its ranks; at the run's end on the whole run."""
        title, level = title or self.title, level or self.level
        if not title or len(title.encode()) > MOST_TITLE:
            raise ValueError(f"title: expected 1 to {MOST_TITLE} bytes, found {len(title.encode())}")
        if level not in LEVELS:
            raise ValueError(f"level: expected one of {', '.join(LEVELS)}, found {level!r}")
        if level == "error" and self.false_alarm is None:
            raise ValueError("level error: expected false_alarm, the share that was measured on healthy runs")
        return self._verdict("finding", steps, ranks, layer, op, explanation=explanation, title=title, level=level,
                             cause=cause or self.cause or self.name, measured=measured, measured_name=measured_name, unit=unit,
                             threshold=threshold, witness=witness, fix=self.fix if fix is None else fix, false_alarm=self.false_alarm)

    def passed(self, reason, *, layer="", op="", steps=None, ranks=None):
        """Returns a pass, with its basis in words."""
        return self._verdict("pass", steps, ranks, layer, op, reason=reason)

    def inconclusive(self, reason, *, layer="", op="", steps=None, ranks=None):
        """Returns "could not be determined". `reason` has the form "short-id: sentence"."""
        return self._verdict("inconclusive", steps, ranks, layer, op, reason=reason)

    def _verdict(self, kind, steps, ranks, layer, op, **fields):
        first, last, present = self._site or (0, 0, [])
        fields = {name: value for name, value in fields.items() if value is not None}
        return {"verdict": kind, "rule": self.name, "steps": list(steps or (first, last)), "layer": layer, "op": op,
                "ranks": sorted(present if ranks is None else ranks)[:1024], **fields}


# dtype -> (bytes, format of struct). bf16 and the 8-bit formats are read by hand.
_FORMATS = {"DTYPE_F64": "d", "DTYPE_F32": "f", "DTYPE_F16": "e", "DTYPE_I64": "q", "DTYPE_I32": "i", "DTYPE_I16": "h", "DTYPE_I8": "b",
            "DTYPE_U64": "Q", "DTYPE_U32": "I", "DTYPE_U16": "H", "DTYPE_U8": "B", "DTYPE_BOOL": "?"}


def tensor(message):
    """Returns the values of a message Tensor as a flat list, in C order. Raises ValueError for a dtype of 8 bits."""
    dtype, data = message.get("dtype", ""), base64.b64decode(message.get("data", ""))
    if dtype == "DTYPE_BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    if dtype not in _FORMATS:
        raise ValueError(f"tensor: expected a dtype of {', '.join(_FORMATS)} or DTYPE_BF16, found {dtype!r}")
    size = struct.calcsize("<" + _FORMATS[dtype])
    return list(struct.unpack(f"<{len(data) // size}{_FORMATS[dtype]}", data))
