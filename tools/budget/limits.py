"""The hot loops and their limits. One row per loop:

  source     a .cu file; function: words in the (mangled) name of the function that has the loop
  unit       the unit of the count, and its bytes of input
  bytes      that a thread loads per round; needs: operations that a round of ordinary data has at
             least (loops.py), without which the cheapest round would be one of zeros
  most       instructions per unit, on sm_80, sm_90 and sm_100: the limits. A twentieth above the
             current counts, so that a small change by the compiler raises no alarm
  registers  most, on every architecture
  spills     loads and stores of a thread's local memory per round, in the same order. They are
             counted among the instructions. With 64 registers eight blocks fit a processor; what a
             compiler keeps in memory for that differs
"""
import dataclasses

ARCHITECTURES = (80, 90, 100)


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    source: str
    function: str
    unit: str
    unit_bytes: int
    bytes: int
    needs: tuple
    most: tuple
    registers: int
    spills: tuple = (0, 0, 0)
    goal: float = 0  # desired instructions per unit; 0: none

    def of(self, limits, architecture):
        return limits[ARCHITECTURES.index(architecture)]


STATS = "kernels/tensor/stats.cu"
BF16, F16, F32 = "MeasureTilesINS0_10BF16", "MeasureTilesINS0_9F16", "MeasureTilesINS0_9F32"
SUMS = ((("FFMA",), 24),)  # squares of 32 values
ENDS = ((("SHFL",), 40),)  # values that a tile's threads exchange at its end
ROWS = (
    # A tile is 64 KiB, eight rounds of 64 bytes per thread, with its keys, ends and verdict.
    Row("tensor statistics, bf16", STATS, BF16, "element", 2, 64, SUMS, (15.3, 9.7, 9.8), 64,
        goal=12.6),
    Row("tensor statistics, f16", STATS, F16, "element", 2, 64, SUMS, (15.9, 9.7, 9.8), 64, goal=12.6),
    Row("tensor statistics, f32", STATS, F32, "element", 4, 64, ((("DFMA",), 12),), (18.3, 17, 15), 64,
        spills=(0, 0, 2), goal=25.3),
    Row("tensor statistics, e4m3", STATS, "MeasureCodes", "element", 1, 64, ((("ATOMS",), 64),),
        (5.6, 5.6, 5.6), 64, goal=6.3),
    Row("a whole tile, bf16", STATS, BF16, "element", 2, 512, ENDS, (16.1, 10.6, 10.6), 64,
        spills=(48, 48, 48), goal=12.6),
    Row("a whole tile, f16", STATS, F16, "element", 2, 512, ENDS, (16.6, 10.6, 10.6), 64,
        spills=(48, 48, 48), goal=12.6),
    Row("a whole tile, f32", STATS, F32, "element", 4, 512, ENDS, (19.8, 18.6, 16.5), 64,
        spills=(48, 48, 48), goal=25.3),
    # Drawn tiles are examined additionally: one of 32 in a large tensor, all in a small one.
    Row("a look besides, bf16", STATS, "DeviceWarpEjt", "element", 2, 16, ((("ATOMS",), 8),),
        (27.1, 25, 21.6), 64, spills=(16, 16, 16)),
    Row("a look besides, f32", STATS, "DeviceWarpEjj", "element", 4, 16, ((("ATOMS",), 4),),
        (36, 38, 40.8), 64, spills=(16, 16, 24)),
    Row("a look besides, f16", STATS, "DeviceWarpEjt", "element", 2, 8,
        ((("ATOMS",), 4), (("SHFL",), 10)), (66, 71, 67), 64, spills=(24, 16, 16)),
    Row("logit pair, bf16", "kernels/logits/pair.cu", "MeasurePlainILi256Et", "pair", 4, 32,
        ((("MUFU",), 16),), (37.4, 36.7, 40.7), 128, spills=(8, 8, 28), goal=35),
    Row("logit pair, f32", "kernels/logits/pair.cu", "MeasurePlainILi256Ej", "pair", 8, 64,
        ((("MUFU",), 16),), (47.9, 43, 45), 128, spills=(16, 16, 24), goal=53),
)
