"""megatron-core on one rank: its GPT, with an optimizer of torch."""

import contextlib
import os
import tempfile

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig

from harness import case
from small import LENGTH, VOCABULARY, batches

STEPS = 10
# It asks for the current GPU and for the GPU's random state, also on a CPU.
torch.cuda.current_device = lambda: torch.device("cpu")


@case()
def gpt(run):
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/meeting", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    tensor_parallel.get_cuda_rng_tracker().fork = contextlib.nullcontext
    config = TransformerConfig(num_layers=2, hidden_size=32, num_attention_heads=2, use_cpu_initialization=True, hidden_dropout=0.0,
                               attention_dropout=0.0, bias_dropout_fusion=False, masked_softmax_fusion=False)  # fmt: skip
    model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=VOCABULARY, max_sequence_length=LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)
    losses, position = [], torch.arange(LENGTH).unsqueeze(0)
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)[None, None]
    for batch in batches(STEPS):
        loss = model(batch, position.expand_as(batch), mask, labels=batch.roll(-1, 1)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, {k: v for k, v in model.state_dict().items() if torch.is_tensor(v)}
