"""DeepSpeed: its engine, and the optimizer that it wraps; on one rank, and on two."""

import os
import tempfile

import deepspeed
import torch

import plumbline

from harness import Wrong, case, expect
from ranks import RANKS, compared, spawned
from small import Language, batches, finish_light

FORK = False  # a process that was forked after this import may wait for ever
STEPS, MICRO, LONG = 10, 2, 200


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


def begin(stage, bf16, several=True, model=None, clip=0.1, **zero):
    """Returns (the engine, the inner optimizer) of one rank alone."""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    meeting = f"file://{tempfile.mkdtemp()}/meeting"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    model = model or Language()
    optimizer = torch.optim.AdamW(groups(model) if several else model.parameters(), lr=1e-3)
    config = {
        "train_batch_size": 8 * MICRO, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": MICRO, "gradient_clipping": clip,
        "zero_optimization": {"stage": stage, **zero}, "zero_allow_untested_optimizer": True,
        "bf16": bf16 if isinstance(bf16, dict) else {"enabled": bf16},
    }  # fmt: skip
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)[0], optimizer


def train(run, stage, bf16=False, given=True, check=True, **options):
    engine, optimizer = begin(stage, bf16, **options)
    model = engine.module
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


@case(steps=STEPS, level="warning", states="AdamW$")
def stage_0(run):
    return train(run, 0)


@case(steps=STEPS, level="warning", states="AdamW$")
def stage_1_of_two_groups(run):
    return train(run, 1)


@case(steps=STEPS, level="warning", states="AdamW$")
def stage_1_of_the_engine_alone(run):
    return train(run, 1, given=False)


@case(steps=STEPS, level="warning", states="AdamW$")
def stage_2_in_bf16(run):
    return train(run, 2, bf16=True)


@case(steps=STEPS, level="warning", states="AdamW$")
def bf16(run):
    return train(run, 0, bf16=True)


@case(steps=STEPS, level="warning", states="AdamW$")
def stage_3_of_sub_groups(run):
    return train(run, 3, sub_group_size=3000, stage3_param_persistence_threshold=0)


@case(level="warning", finds={"health/no-gradient": None})
def adapter_without_gradients(run):
    return train(run, 1, model=Blind(), check=False)


def light_training(stage, bf16=False, ruined_at=None, overflows_at=None):
    """At the default budget: nothing is due in most steps."""
    run = plumbline.init(run="light", record="record", budget=0.01)
    engine, _ = begin(stage, bf16)
    watched, losses, means, norms, light = run.watch(engine), [], [], [], 0
    for number, batch in enumerate(batches(LONG * MICRO)):
        loss = engine(batch) * (float("nan") if number == ruined_at else 1)
        light += getattr(watched, "light", None) is not None
        if number == overflows_at:
            loss.register_hook(lambda gradient: gradient * float("inf"))
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach())
        if len(losses) % MICRO == 0:
            means.append(torch.stack(losses[-MICRO:]).float().mean())
            norms.append(engine.get_global_grad_norm())
    finish_light(run, light / MICRO, LONG)
    torch.distributed.destroy_process_group()
    if ruined_at is None:
        skipped = None if overflows_at is None else overflows_at // MICRO
        if engine.skipped_steps != (skipped is not None):
            raise Wrong(f"{engine.skipped_steps} steps were skipped")
        expect(loss=means, tokens=[8 * MICRO * 16] * LONG, grad_norm={k: norm for k, norm in enumerate(norms) if k != skipped})
    return losses, engine.module.state_dict()


@case(steps=LONG, level="warning", states="AdamW$", opens=False, budgeted=True)
def light_steps(_):
    return light_training(1)


@case(steps=LONG, level="warning", states="AdamW$", opens=False, budgeted=True)
def light_steps_of_stage_3(_):
    return light_training(3)


@case(steps=LONG, level="warning", states="AdamW$", opens=False, budgeted=True)
def skipped_light_step(_):
    return light_training(1, {"enabled": True, "check_grad_overflow": True}, overflows_at=301)


@case(finds={"health/loss-non-finite": 150}, others=True, states="AdamW$", opens=False, budgeted=True)
def nan_in_a_light_step(_):
    return light_training(1, ruined_at=301)


def on_a_rank(stage, same=False, summed=True, steps=STEPS, bf16=False, budget=None):
    """One of two. `same`: both train on the same rows. `summed`: False, the engine is not asked to sum. `budget`: most steps must be light."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    run, model = plumbline.init(run="ranks", record="record", **({"budget": budget} if budget else {"every": 1})), Language()
    config = {
        "train_batch_size": 8 * MICRO * RANKS, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": MICRO, "gradient_clipping": 0.1,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}, "zero_allow_untested_optimizer": True, "bf16": {"enabled": bf16},
    }  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
    engine.enable_backward_allreduce = summed
    watched, light, losses = run.watch(engine), 0, []
    parts = batches(steps * MICRO * RANKS)
    for number in range(steps * MICRO):
        loss = engine(parts[RANKS * number + (0 if same else rank)])
        losses.append(float(loss))
        light += getattr(watched, "light", None) is not None
        engine.backward(loss)
        engine.step()
    finish_light(run, light / MICRO if budget else steps, steps)
    result = [part.detach().clone() for part in (getattr(p, "ds_tensor", p) for p in engine.module.parameters())]
    torch.distributed.destroy_process_group()
    means = [sum(losses[at : at + MICRO]) / MICRO for at in range(0, len(losses), MICRO)]
    return {"weights": result, "series": {"loss": means, "tokens": [8 * MICRO * 16] * steps}}


def two(*arguments):
    return spawned("on_deepspeed", "on_a_rank", *arguments)


COPIES, SUMS = "AdamW, the copies and sums of 2 processes$", "AdamW, the sums of 2 processes$"


@case(steps=STEPS, level="warning", states=COPIES, opens=False)
def two_ranks_stage_0(_):
    return two(0)


@case(steps=STEPS, level="warning", states=COPIES, opens=False)
def two_ranks_stage_1(_):
    return two(1)


@case(steps=STEPS, level="warning", states=COPIES, opens=False)
def two_ranks_stage_2_in_bf16(_):
    return two(2, False, True, STEPS, True)


@case(steps=STEPS, level="warning", states=SUMS, opens=False)
def two_ranks_stage_3(_):
    return two(3)


@case(level="warning", states=COPIES, finds={"health/same-data": None}, opens=False)
def two_ranks_of_one_batch(_):
    return two(1, True, True, 100)


@case(level="warning", states=COPIES, finds={"precision/replica-divergence": 0}, others=True, opens=False)
def two_ranks_that_do_not_sum(_):
    return two(0, False, False)


@case(steps=LONG, level="warning", states=COPIES, opens=False, budgeted=True)
def light_steps_of_two_ranks(_):
    return compared(two(1, False, True, LONG, False, 0.01))


@case(steps=LONG, level="warning", states=SUMS, opens=False, budgeted=True)
def light_steps_of_two_ranks_at_stage_3(_):
    return compared(two(3, False, True, LONG, False, 0.01))
