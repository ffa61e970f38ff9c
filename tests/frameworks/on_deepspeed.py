"""DeepSpeed on one rank: its engine, and the optimizer that it wraps."""

import os
import tempfile

import deepspeed
import torch

from harness import case, expect
from small import Language, batches

FORK = False  # a process that was forked after this import may wait for ever
STEPS, MICRO = 10, 2


def groups(model):
    """Decay and no decay."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    return [{"params": matrices, "weight_decay": 0.01}, {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]


class Blind(torch.nn.Module):
    """An adapter that the loss does not reach, and one that it does."""

    def __init__(self):
        super().__init__()
        self.language = Language()
        self.lora_A = torch.nn.Linear(32, 4, bias=False)

    def forward(self, words):
        self.lora_A(self.language.embed(words))
        return self.language(words)


def train(run, stage, bf16=False, given=True, several=True, model=None, clip=0.1, check=True, **zero):
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    meeting = f"file://{tempfile.mkdtemp()}/meeting"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    model = model or Language()
    optimizer = torch.optim.AdamW(groups(model) if several else model.parameters(), lr=1e-3)
    config = {
        "train_batch_size": 8 * MICRO, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": MICRO, "gradient_clipping": clip,
        "zero_optimization": {"stage": stage, **zero}, "zero_allow_untested_optimizer": True, "bf16": {"enabled": bf16},
    }  # fmt: skip
    engine, wrapped, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
    run.watch(engine, optimizer) if given else run.watch(engine)
    losses, means, norms = [], [], []
    for batch in batches(STEPS * MICRO):
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach())
        if len(losses) % MICRO == 0:  # the norm is not kept at stage 0
            means.append(torch.stack(losses[-MICRO:]).float().mean())
            norms.append(engine.get_global_grad_norm())
    torch.distributed.destroy_process_group()
    if check:
        expect(loss=means, tokens=[8 * MICRO * 16] * STEPS, **({"grad_norm": norms} if norms[0] is not None else {}))
    return losses, model.state_dict()


@case(steps=STEPS, level="warning", says="AdamW$")
def stage_0(run):
    return train(run, 0)


@case(steps=STEPS, level="warning", says="AdamW$")
def stage_1_of_two_groups(run):
    return train(run, 1)


@case(steps=STEPS, level="warning", says="AdamW$")
def stage_1_of_the_engine_alone(run):
    return train(run, 1, given=False)


@case(steps=STEPS, level="warning", says="AdamW$")
def stage_2_in_bf16(run):
    return train(run, 2, bf16=True)


@case(steps=STEPS, level="warning", says="AdamW$")
def bf16(run):
    return train(run, 0, bf16=True)


@case(steps=STEPS, level="warning", says="AdamW$")
def stage_3_of_sub_groups(run):
    return train(run, 3, sub_group_size=3000, stage3_param_persistence_threshold=0)


@case(level="warning", finds={"health/no-gradient": None})
def adapter_without_gradients(run):
    return train(run, 1, model=Blind(), check=False)
