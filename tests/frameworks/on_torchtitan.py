"""torchtitan: its container of optimizers over parts of a model."""

import torch
from torchtitan.components.optimizer import OptimizersContainer, default_adamw

from harness import case
from small import Language, batches

STEPS = 20


@case(steps=STEPS, level="warning", states="AdamW$")
def container(run):
    model = Language()
    config = default_adamw(lr=1e-3)
    config.implementation = "foreach"
    optimizers = OptimizersContainer(config, model_parts=[model])
    run.watch(model, optimizers)
    losses = []
    for batch in batches(STEPS):
        optimizers.zero_grad()
        loss = model(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizers.step()
        losses.append(loss.detach())
    return losses, model.state_dict()
