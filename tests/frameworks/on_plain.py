"""A loop of one's own on the newest torch."""

# Imported once, for all that is forked from here: what torch.compile needs, and most frameworks with it.
import plumbline  # noqa: F401
import torch
import torch._dynamo  # noqa: F401
import torch.distributed.tensor  # noqa: F401

from harness import case
from small import Language, batches

STEPS = 30


def train(run, model, optimizer, micro=1, poison=None):
    run.watch(model, optimizer)
    losses = []
    for step, batch in enumerate(batches(STEPS)):
        for part in batch.chunk(micro):
            loss = model(part) / micro
            (loss * float("nan") if step == poison else loss).backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
    return losses, model.state_dict()


@case(steps=STEPS)
def adamw(run):
    model = Language()
    return train(run, model, torch.optim.AdamW(model.parameters(), lr=1e-3))


@case(steps=STEPS)
def momentum_of_micro_batches(run):
    model = Language()
    return train(run, model, torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9), micro=2)


@case(steps=STEPS)
def compiled(run):
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return train(run, torch.compile(model, backend="aot_eager"), optimizer)


@case(steps=STEPS, finds={"health/loss-non-finite": 20, "precision/non-finite": 20})
def loss_is_nan(run):
    model = Language()
    return train(run, model, torch.optim.AdamW(model.parameters(), lr=1e-3), poison=20)
