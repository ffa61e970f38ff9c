"""megatron-core on one rank, and on two: its GPT, its DistributedDataParallel, its schedule and its optimizers."""

import contextlib
import os
import tempfile

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import ChainedOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.optimizer import FP32Optimizer
from megatron.core.pipeline_parallel import schedules
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

import plumbline

from harness import Wrong, case, expect
from ranks import of_ranks
from small import LENGTH, VOCABULARY, batches

STEPS, MICRO = 10, 2
# It asks for the current GPU, for the GPU's random state, and for a GPU's types, also on a CPU.
torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.synchronize = lambda *_: None
_type, _tensor, _zeros = torch.Tensor.type, torch.tensor, torch.zeros
torch.Tensor.type = lambda self, *given: _type(self, *given) if given else _type(self).replace("torch.", "torch.cuda.")


def _here(make):
    def made(*arguments, device=None, **options):
        return make(*arguments, device="cpu" if device == "cuda" else device, **options)

    return made


moe_utils.te_general_gemm = None  # without Transformer Engine the name is missing
torch.tensor, torch.zeros = _here(_tensor), _here(_zeros)


def begin(several=False):
    if several:
        torch.distributed.init_process_group("gloo")
    else:
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
        torch.distributed.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/meeting", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    tensor_parallel.get_cuda_rng_tracker().fork = contextlib.nullcontext


def gpt_model(experts=None, width=32, **options):
    config = TransformerConfig(num_layers=2, hidden_size=width, num_attention_heads=2, use_cpu_initialization=True, hidden_dropout=0.0,
                               attention_dropout=0.0, bias_dropout_fusion=False, masked_softmax_fusion=False, num_moe_experts=experts,
                               add_bias_linear=experts is None, gradient_accumulation_fusion=False, **options)  # fmt: skip
    return GPTModel(config, get_gpt_layer_local_spec(num_experts=experts), vocab_size=VOCABULARY, max_sequence_length=LENGTH)


POSITION = torch.arange(LENGTH).unsqueeze(0)
MASK = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)[None, None]


@case(steps=STEPS, level="warning", states="AdamW")
def gpt(run):
    begin()
    model = gpt_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)
    losses = []
    for batch in batches(STEPS):
        loss = model(batch, POSITION.expand_as(batch), MASK, labels=batch.roll(-1, 1)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    expect(loss=losses)
    return losses, {k: v for k, v in model.state_dict().items() if torch.is_tensor(v)}


def chained(config, model):
    """One for matrices, one for the rest."""
    parts = [[p for p in model.parameters() if (p.dim() > 1) == matrices] for matrices in (True, False)]
    optimizers = [FP32Optimizer(torch.optim.AdamW(part, lr=1e-3), config, lambda *_: None) for part in parts]
    for one in optimizers:
        one.grad_stats_parallel_group = parallel_state.get_model_parallel_group()
    return ChainedOptimizer(optimizers)


def train(run, bf16=False, distributed=False, experts=None, deallocate=False, clip=0.1, optimizer_of=None, several=False, same=False, summed=True, steps=STEPS):
    """As Megatron-LM does it: its schedule, with two micro-batches. `several` ranks; `same`: on the same rows; not `summed`: their gradients are not."""
    begin(several)
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    run = run or plumbline.init(run="ranks", record="record", every=1)
    options = {"bf16": True, "params_dtype": torch.bfloat16, "pipeline_dtype": torch.bfloat16} if bf16 else {}
    model = gpt_model(experts, deallocate_pipeline_outputs=deallocate, **options)
    model = Float16Module(model.config, model.bfloat16()) if bf16 else model
    ddp = DistributedDataParallelConfig(use_distributed_optimizer=distributed, grad_reduce_in_fp32=bf16, overlap_grad_reduce=False)
    model = DistributedDataParallel(model.config, ddp, model)
    options = OptimizerConfig(optimizer="adam", lr=1e-3, bf16=bf16, use_distributed_optimizer=distributed, clip_grad=clip)
    optimizer = optimizer_of(options, model) if optimizer_of else get_megatron_optimizer(options, [model])
    config = model.config
    config.grad_scale_func, config.finalize_model_grads_func = optimizer.scale_loss, finalize_model_grads if summed else None
    run.watch([model], optimizer)
    losses, norms = [], []

    def forward(data, model):
        batch = next(data)
        return model(batch, POSITION.expand_as(batch), MASK, labels=batch.roll(-1, 1)), lambda out: (out.float().mean(), {"loss": out.detach().float().mean()})

    data = iter(batches(steps * MICRO * ranks)[0 if same else rank :: ranks])
    for _ in range(steps):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        reported = schedules.forward_backward_no_pipelining(forward_step_func=forward, data_iterator=data, model=[model], num_microbatches=MICRO,
                                                        seq_length=LENGTH, micro_batch_size=8, forward_only=False)  # fmt: skip
        made, norm, _ = optimizer.step()
        losses.append(torch.stack([one["loss"] for one in reported]).mean())
        norms.append(norm)
    if several:
        if not run.finish():
            raise Wrong("run.finish() is false")
    else:
        expect(loss=losses, grad_norm=norms, tokens=[8 * MICRO * LENGTH] * steps)
    return losses, norms, {k: v for k, v in model.state_dict().items() if torch.is_tensor(v)}


@case(steps=STEPS, level="warning", states="AdamW")
def ddp_and_schedule(run):
    return train(run)


@case(steps=STEPS, level="warning", states="AdamW")
def the_engine_called_directly(run):
    return train(run, deallocate=True)


@case(steps=STEPS, level="warning", states="AdamW")
def bf16(run):
    return train(run, bf16=True)


@case(steps=STEPS, level="warning", states="AdamW")
def distributed_optimizer(run):
    return train(run, distributed=True)


@case(steps=STEPS, level="warning", states="AdamW")
def distributed_optimizer_bf16(run):
    return train(run, bf16=True, distributed=True)


@case(steps=STEPS, level="warning", states="2 of AdamW")
def chained_optimizers(run):
    return train(run, optimizer_of=chained)


@case(steps=STEPS, states=r"2 routers \(decoder.layers.0.mlp and 1 more: top-2 of 4, Megatron-like structure\)$")
def experts(run):
    return train(run, experts=4)


def two(**options):
    return of_ranks(lambda: train(None, several=True, **options))


COPIES = "AdamW, the copies and sums of 2 processes$"


@case(steps=STEPS, level="warning", states=COPIES, opens=False)
def two_ranks(_):
    return two()


@case(steps=STEPS, level="warning", states=COPIES, opens=False)
def two_ranks_distributed_optimizer_bf16(_):
    return two(bf16=True, distributed=True)


@case(level="warning", states=COPIES, finds={"health/same-data": None}, others=True, opens=False)  # nothing can be learned of random words
def two_ranks_of_one_batch(_):
    return two(same=True, steps=100)


@case(level="warning", states=COPIES, finds={"precision/replica-divergence": 0}, others=True, opens=False)
def two_ranks_that_do_not_sum(_):
    return two(summed=False)
