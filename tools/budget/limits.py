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


FLOATS = ("FADD", "FMUL", "FFMA")
ROWS = (
    # Of a large tensor 31 of 32 tiles are measured in lean rounds, the 32nd as "looked at".
    Row("tensor statistics, bf16", "kernels/tensor/stats.cu", "MeasureSpanIjt", "element", 2, 64,
        ((("FFMA",), 40),), 17.5, 168, goal=12.6),
    Row("tensor statistics, f32", "kernels/tensor/stats.cu", "MeasureSpanIjj", "element", 4, 64,
        ((("DADD",), 88),), 38, 168, spills=8, goal=25.3),
    Row("the same looked at, bf16", "kernels/tensor/stats.cu", "MeasureSpanIjt", "element", 2, 16,
        ((("FFMA",), 10), (("POPC",), 2)), 48, 168),
    Row("the same looked at, f32", "kernels/tensor/stats.cu", "MeasureSpanIjj", "element", 4, 16,
        ((("DADD",), 10), (("POPC",), 4)), 106, 168, spills=8),
    Row("tensor statistics, f16", "kernels/tensor/stats.cu", "MeasureSpanIjt", "element", 2, 8,
        ((("ATOMS",), 4), (("IMAD.WIDE",), 8)), 84, 168, goal=12.6),
    Row("logit pair, bf16", "kernels/logits/pair.cu", "MeasurePlainILi256Et", "pair", 4, 32,
        ((("MUFU",), 16),), 45.5, 128, goal=35),
    Row("logit pair, f32", "kernels/logits/pair.cu", "MeasurePlainILi256Ej", "pair", 8, 64,
        ((("MUFU",), 16),), 48.5, 128, spills=24, goal=53),  # 3 on sm_90
)
