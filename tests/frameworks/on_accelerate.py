"""accelerate: what prepare returned is watched."""

import plumbline
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState

from harness import case, expect
from small import Language, finish_light, words

STEPS, MICRO, LONG = 20, 4, 200


def fp16(accelerator):
    """accelerate refuses fp16 on a CPU; the scaler that it would hold works there."""
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=5)


def prepare(micro=1, scaled=False, batches=STEPS, optimizer=torch.optim.AdamW):
    AcceleratorState._reset_state()
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=micro)
    if scaled:
        fp16(accelerator)
    model = Language()
    data = torch.utils.data.DataLoader(words(batches * micro * 8), batch_size=8)
    return accelerator, *accelerator.prepare(model, optimizer(model.parameters(), lr=1e-3), data)


@case(steps=STEPS, level="warning")
def prepared(run):
    accelerator, model, optimizer, data = prepare()
    run.watch(model, optimizer)
    losses, norms = [], []
    for batch in data:
        loss = model(batch)
        accelerator.backward(loss)
        norms.append(accelerator.clip_grad_norm_(model.parameters(), 0.1))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    expect(loss=losses, grad_norm=norms)
    return losses, model.state_dict()


def accumulate(run, scaled, watched=lambda optimizer: optimizer):
    accelerator, model, optimizer, data = prepare(MICRO, scaled)
    run.watch(model, watched(optimizer))
    losses, means = [], []
    for batch in data:
        with accelerator.accumulate(model):
            loss = model(batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        if accelerator.sync_gradients:
            means.append(torch.stack(losses[-MICRO:]).mean())
    expect(loss=means)
    return losses, model.state_dict()


@case(steps=STEPS, level="warning", states="AdamW$")
def micro_batches(run):
    return accumulate(run, False)


@case(steps=STEPS, level="warning", states="AdamW$")
def micro_batches_of_the_inner_optimizer(run):
    return accumulate(run, False, lambda optimizer: optimizer.optimizer)


@case(steps=STEPS, level="warning", states="AdamW$")
def micro_batches_scaled(run):
    return accumulate(run, True)


def train_scaled(run, overflows=(), watched=lambda optimizer: optimizer):
    """A scaled loss; in some steps its gradient overflows and the step is skipped."""
    accelerator, model, optimizer, data = prepare(scaled=True, batches=2 * STEPS)
    run.watch(model, watched(optimizer))
    losses, scales, norms = [], [], {}
    for step, batch in enumerate(data):
        loss = model(batch)
        scales.append(accelerator.scaler.get_scale() if step else 2.0**16)
        poison = [model.head.weight.register_hook(lambda g: g * float("inf"))] if step in overflows else []
        accelerator.backward(loss)
        for one in poison:
            one.remove()
        accelerator.scaler.unscale_(optimizer.optimizer)  # what it does itself under fp16
        norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
        if step not in overflows:
            norms[step] = norm
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    expect(loss=losses, loss_scale=scales, grad_norm=norms)
    return losses, model.state_dict()


@case(steps=2 * STEPS, level="warning", states="AdamW$")
def scaled(run):
    return train_scaled(run)


@case(steps=2 * STEPS, level="warning", states="AdamW$")
def scaled_and_skipped(run):
    return train_scaled(run, overflows=(0, 12))


@case(steps=2 * STEPS, level="warning", states="AdamW$")
def scaled_and_skipped_inner_optimizer(run):
    return train_scaled(run, (0, 12), lambda optimizer: optimizer.optimizer)


@case(steps=STEPS, finds={"health/loss-non-finite": 10, "precision/non-finite": 10})
def loss_is_nan(run):
    accelerator, model, optimizer, data = prepare()
    run.watch(model, optimizer)
    for step, batch in enumerate(data):
        loss = model(batch) * (float("nan") if step == 10 else 1)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def light_training(micro=1, ruined_at=None, scaled=False, overflows_at=None):
    """At the default budget: nothing is due in most steps."""
    run = plumbline.init(run="light", record="record", budget=0.01)
    accelerator, model, optimizer, data = prepare(micro, scaled, batches=LONG)
    watched, losses, means, norms, scales, light = run.watch(model, optimizer), [], [], [], [], 0
    for number, batch in enumerate(data):
        with accelerator.accumulate(model):
            loss = model(batch) * (float("nan") if number == ruined_at else 1)
            poison = model.head.weight.register_hook(lambda g: g * float("inf")) if number == overflows_at else None
            accelerator.backward(loss)
            if poison is not None:
                poison.remove()
            losses.append(loss.detach())
            light += getattr(watched, "light", None) is not None
            if accelerator.sync_gradients:
                if scaled:
                    accelerator.scaler.unscale_(optimizer.optimizer)  # what it does itself under fp16
                norms.append(accelerator.clip_grad_norm_(model.parameters(), 0.1))
                means.append(torch.stack(losses[-micro:]).mean())
                scales.append(accelerator.scaler.get_scale() if scaled else None)
            optimizer.step()
            optimizer.zero_grad()
    finish_light(run, light / micro, LONG)
    if ruined_at is None:
        norms = {step: norm for step, norm in enumerate(norms) if overflows_at is None or step != overflows_at // micro}
        expect(loss=means, grad_norm=norms, tokens=[8 * micro * 16] * LONG, loss_scale=scales if scaled else None)
    return losses, model.state_dict()


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def light_steps(_):
    return light_training()


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def light_micro_batches(_):
    return light_training(MICRO)


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def light_scaled_micro_batches(_):
    return light_training(MICRO, scaled=True)


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def skipped_light_step(_):
    return light_training(MICRO, scaled=True, overflows_at=150 * MICRO + 2)


@case(finds={"health/loss-non-finite": 150}, others=True, opens=False, budgeted=True)
def nan_in_a_light_micro_batch(_):
    return light_training(MICRO, ruined_at=150 * MICRO + 2)
