"""accelerate: what prepare returned is watched."""

import torch
from accelerate import Accelerator

from harness import case
from small import Language, words

STEPS = 20


@case(steps=STEPS)
def prepared(run):
    accelerator = Accelerator(cpu=True)
    model = Language()
    data = torch.utils.data.DataLoader(words(STEPS * 8), batch_size=8)
    model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), data)
    run.watch(model, optimizer)
    losses = []
    for batch in data:
        loss = model(batch)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, model.state_dict()
