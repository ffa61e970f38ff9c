"""Capabilities of GPUs, and the share of a copy's speed that a loop can reach on each.

Rates are results per clock and multiprocessor: the CUDA C++ Programming Guide's table of native arithmetic throughput
for compute capability 8.0, 9.0 and 10.0. `copy` is the speed of a device-to-device copy of large arrays, read and
written bytes together, in TB/s. `copy`, the clock under load, and `latency`, a load's latency under a full memory
system, are customary figures, to be replaced by measured ones (tools/gpu_check measures its own).
"""
import dataclasses
import math

FULL = 128  # four warp instructions per clock
_HOPPER = {"alu": 64, "imad": 64, "fp32": 128, "half": 128, "fp64": 64, "convert": 16, "sfu": 16,
           "memory": 32, "uniform": 64, "control": 64, "tensor": 16, "unknown": 16}
_AMPERE = {**_HOPPER, "fp32": 64, "half": 64, "fp64": 32}


@dataclasses.dataclass(frozen=True)
class Machine:
    name: str
    architecture: int
    processors: int
    gigahertz: float
    copy: float
    rates: dict
    latency: float = 600e-9
    shared: int = 228 << 10


MACHINES = (
    Machine("H200", 90, 132, 1.83, 4.3, _HOPPER),
    Machine("H100", 90, 132, 1.83, 3.0, _HOPPER),
    Machine("B200", 100, 148, 1.85, 7.0, _HOPPER),
    Machine("A100", 80, 108, 1.41, 1.75, _AMPERE, shared=164 << 10),
)
REGISTERS, WARPS, BLOCKS, WARP = 65536, 64, 32, 32


def resident_warps(kernel, machine):
    """Returns the warps that a multiprocessor holds. Registers are allocated to a warp 256 at a time, and each block
    reserves 1 KiB of shared memory for the system."""
    warps = math.ceil(kernel.threads / WARP)
    each = math.ceil(max(kernel.registers, 1) * WARP / 256) * 256
    by_registers = REGISTERS // each // warps
    by_shared = machine.shared // (kernel.shared + 1024)
    return warps * min(by_registers, by_shared, WARPS // warps, BLOCKS)


def reach(machine, pipes, unit_bytes, issue=1.0):
    """Returns (share of a copy, the pipe that limits it). `pipes`: instructions by pipe for `unit_bytes` of input. At
    `issue` of full issue, all pipes alike."""
    clocks = {pipe: count / machine.rates[pipe] for pipe, count in pipes.items()}
    clocks["issue"] = sum(pipes.values()) / FULL
    bound = max(clocks, key=clocks.get)
    speed = machine.processors * machine.gigahertz * 1e9 * issue / clocks[bound] * unit_bytes
    return speed / (machine.copy * 1e12), bound


def in_flight(machine, kernel, thread_bytes):
    """Returns (maximum bytes that a multiprocessor's loads have in flight, bytes that hide the latency)."""
    return (resident_warps(kernel, machine) * WARP * thread_bytes,
            machine.copy * 1e12 * machine.latency / machine.processors)
