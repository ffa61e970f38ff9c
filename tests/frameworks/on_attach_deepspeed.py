"""DeepSpeed without a line of Plumbline, as under `plumb run`."""

import on_deepspeed
from untouched import untouched

FORK = on_deepspeed.FORK

untouched("deepspeed", "stage_0", "stage_1_of_two_groups", "stage_2_in_bf16")
