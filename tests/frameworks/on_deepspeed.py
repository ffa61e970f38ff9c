"""DeepSpeed on one rank: its engine, and the optimizer that it wraps."""

import os
import tempfile

import deepspeed
import torch

from harness import case
from small import Language, batches

FORK = False  # a process that was forked after this import may wait for ever
STEPS = 10


def train(run, stage):
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    meeting = f"file://{tempfile.mkdtemp()}/meeting"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    config = {"train_batch_size": 8, "zero_optimization": {"stage": stage}, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True}
    engine, wrapped, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
    run.watch(engine, optimizer)
    losses = []
    for batch in batches(STEPS):
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach())
    torch.distributed.destroy_process_group()
    return losses, model.state_dict()


@case()
def stage_0(run):
    return train(run, 0)


@case()
def stage_1(run):
    return train(run, 1)
