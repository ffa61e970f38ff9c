"""Measures the rows of limits.py in cubins, compares them with their limits, and writes the page."""
import collections
import dataclasses

import cubin
import loops
import machines
import opcodes


@dataclasses.dataclass
class Found:
    """A row in one architecture's code. `pipes`: instructions per unit."""
    row: object
    kernel: object
    instructions: float
    whole: float
    pipes: dict
    flight: int
    spills: int  # loads and stores of a thread's local memory, per round
    way: list    # the round's instructions


def _numbers(names):
    return {number for number, (name, _) in opcodes.OPERATIONS.items() if name in names}


def measure(row, kernels):
    """Returns the row's loop: of those with such a round, the one with the cheapest."""
    needs = [(_numbers(names), count) for names, count in row.needs]
    best = None
    for kernel in kernels:
        for loop in loops.loops(kernel):
            if row.function not in loop.function:
                continue
            way = loop.way(row.bytes, needs)
            if way is not None and (best is None or len(way) < len(best[2])):
                best = kernel, loop, way
    if best is None:
        raise LookupError(f"{row.name}: no loop of {row.function} loads {row.bytes} bytes a round "
                          f"with {row.needs}")
    kernel, loop, way = best
    units = row.bytes / row.unit_bytes
    pipes = collections.Counter(opcodes.OPERATIONS.get(i.operation, ("", "unknown"))[1]
                                for i in way)
    return Found(row, kernel, len(way) / units, loop.whole / units,
                 {pipe: count / units for pipe, count in pipes.items()}, loops.under_way(way),
                 sum(i.operation in cubin.OWN_MEMORY for i in way), way)


def errors(found):
    """Returns [text]: what exceeds its limit."""
    row, out = found.row, []
    architecture = found.kernel.architecture
    where = f"{row.name}, sm_{architecture}"
    most, spills = row.of(row.most, architecture), row.of(row.spills, architecture)
    if found.pipes.get("unknown"):
        out.append(f"{where}: {found.pipes['unknown']:.2f} instructions a {row.unit} that "
                   "tools/budget/opcodes.py does not know")
    if found.instructions > most:
        out.append(f"{where}: {found.instructions:.1f} instructions a {row.unit}, expected at most "
                   f"{most:g}")
    if found.kernel.registers > row.registers:
        out.append(f"{where}: {found.kernel.registers} registers, expected at most {row.registers}")
    if found.spills > spills:
        out.append(f"{where}: {found.spills} loads and stores of a thread's own memory "
                   f"a round, expected at most {spills}")
    return out


def _table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def counts(all_found):
    """Returns the instructions of each row by pipe."""
    rows = []
    for f in all_found:
        rows.append([f.row.name, f"sm_{f.kernel.architecture}", f"{f.instructions:.1f}",
                     f"{f.row.of(f.row.most, f.kernel.architecture):g}",
                     f"{f.row.goal:g}" if f.row.goal and f.kernel.architecture == 90 else "",
                     *(f"{f.pipes.get(p, 0):.1f}" for p in SHOWN), f"{f.whole:.0f}",
                     str(f.kernel.registers), str(f.spills)])
    return _table(["loop", "for", "a unit", "limit", "goal", *SHOWN, "whole loop", "registers",
                   "own memory"], rows)


SHOWN = ("alu", "imad", "fp32", "half", "fp64", "convert", "sfu", "memory", "uniform", "control")


def shares(all_found):
    """Returns the maximum share of a copy's speed that each row can reach on each machine."""
    rows = []
    for machine in machines.MACHINES:
        for f in all_found:
            if f.kernel.architecture != machine.architecture:
                continue
            share, bound = machines.reach(machine, f.pipes, f.row.unit_bytes)
            three, _ = machines.reach(machine, f.pipes, f.row.unit_bytes, .75)
            has, wants = machines.in_flight(machine, f.kernel, f.flight)
            rows.append([machine.name, f.row.name, f"{min(share, 1):.0%}", f"{min(three, 1):.0%}",
                         bound, str(machines.resident_warps(f.kernel, machine)),
                         f"{has / 1024:.1f}", f"{wants / 1024:.1f}"])
    return _table(["GPU", "loop", "of a copy, at most", "at three quarters of issue", "bound by",
                   "warps", "KiB under way, at most", "KiB that hide the latency"], rows)
