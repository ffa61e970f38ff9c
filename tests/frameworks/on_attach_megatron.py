"""Megatron-core without a line of Plumbline, as under `plumb run`."""

import on_megatron
from untouched import untouched

assert on_megatron
untouched("megatron", "gpt", "ddp_and_schedule", "distributed_optimizer_bf16", "chained_optimizers")
