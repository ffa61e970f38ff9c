"""The hot loops and what each is held to. One row a loop:

  source     a .cu file; function: words in the (mangled) name of the function that has the loop
  unit       what is counted by, and how many bytes of input it has
  bytes      that a thread loads a round; needs: operations that a round of ordinary data has at
             least (loops.py), without which the cheapest round would be one of zeros
  most       instructions a unit, on sm_90: the limit. A tenth above what is reached, or the goal
  registers  most, on every architecture; spills: loads and stores of a thread's own memory a round
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    source: str
    function: str
    unit: str
    unit_bytes: int
    bytes: int
    needs: tuple
    most: float
    registers: int
    spills: int = 0
    goal: float = 0  # instructions a unit that are wanted; 0: none is set


STATS = "kernels/tensor/stats.cu"
BF16, F16, F32 = "MeasureTilesINS0_10BF16", "MeasureTilesINS0_9F16", "MeasureTilesINS0_9F32"
SUMS = ((("FFMA",), 24),)  # squares of 32 values
ENDS = ((("SHFL",), 40),)  # what a tile's threads exchange at its end
ROWS = (
    # Of 64 KiB eight rounds of 64 bytes a thread are a tile, with its keys, ends and verdict.
    Row("tensor statistics, bf16", STATS, BF16, "element", 2, 64, SUMS, 9.7, 64, goal=12.6),
    Row("tensor statistics, f16", STATS, F16, "element", 2, 64, SUMS, 9.7, 64, goal=12.6),
    Row("tensor statistics, f32", STATS, F32, "element", 4, 64, ((("DFMA",), 12),), 17, 64, goal=25.3),
    Row("tensor statistics, e4m3", STATS, "MeasureCodes", "element", 1, 64, ((("ATOMS",), 64),), 5.6, 64,
        goal=6.3),
    Row("a whole tile, bf16", STATS, BF16, "element", 2, 512, ENDS, 10.6, 64, spills=48, goal=12.6),
    Row("a whole tile, f16", STATS, F16, "element", 2, 512, ENDS, 10.6, 64, spills=48, goal=12.6),
    Row("a whole tile, f32", STATS, F32, "element", 4, 512, ENDS, 18.6, 64, spills=48, goal=25.3),
    # Of a large tensor one of 32 drawn tiles is looked at besides, of a small one all are.
    Row("a look besides, bf16", STATS, "DeviceWarpEjt", "element", 2, 16, ((("ATOMS",), 8),), 25, 64,
        spills=16),
    Row("a look besides, f32", STATS, "DeviceWarpEjj", "element", 4, 16, ((("ATOMS",), 4),), 38, 64,
        spills=16),
    Row("a look besides, f16", STATS, "DeviceWarpEjt", "element", 2, 8,
        ((("ATOMS",), 4), (("SHFL",), 10)), 71, 64, spills=16),
    Row("logit pair, bf16", "kernels/logits/pair.cu", "MeasurePlainILi256Et", "pair", 4, 32,
        ((("MUFU",), 16),), 43.8, 128, spills=8, goal=35),
    Row("logit pair, f32", "kernels/logits/pair.cu", "MeasurePlainILi256Ej", "pair", 8, 64,
        ((("MUFU",), 16),), 47, 128, spills=32, goal=53),  # 10 on sm_90
)
