"""Light steps of a loop with torch's loss scaler: each trains twice, at the default budget and with whole steps only, and both records are the
same to the bit."""

import pathlib

import plumbline
import torch

from harness import case, expect, recorded
from small import Language, batches

LONG, SEVERAL = 200, 4


def train(record, budget, micro, clip, overflows, ruined_at, divisor):
    run = plumbline.init(run="scaled", record=record, budget=budget)
    torch.manual_seed(0)
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", growth_interval=30)
    watched, losses, norms, scales, light = run.watch(model, optimizer), [], {}, [], 0
    for step, batch in enumerate(batches(LONG)):
        poison = [model.head.weight.register_hook(lambda g: g * float("inf"))] if step in overflows else []
        total = 0
        for part in batch.chunk(micro):
            loss = model(part) / micro * (float("nan") if step == ruined_at else 1)
            (scaler.scale(loss) / divisor).backward() if divisor else scaler.scale(loss).backward()
            total += loss.detach().item()
        for one in poison:
            one.remove()
        scales.append(scaler.get_scale())
        if clip:
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            norms |= {} if step in overflows or step == ruined_at else {step: norm}
        light += getattr(watched, "light", None) is not None
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(total)
    if type(run).__name__ == "Run":
        assert run.finish()
        assert light > LONG / 2 if budget < 1 and not divisor else light < LONG / 2, f"{light} steps were light"
    if ruined_at is None and not divisor:
        expect(loss=losses, loss_scale=scales, **({"grad_norm": norms} if clip else {}))
    return losses, scales, norms, model.state_dict()


def equal(micro=1, clip=0.5, overflows=(), ruined_at=None, divisor=None):
    given = (micro, clip, overflows, ruined_at, divisor)
    whole, result = train("whole/record", 1, *given), train("record", 0.01, *given)
    if pathlib.Path("record").exists():
        ours, theirs = recorded(pathlib.Path()), recorded(pathlib.Path("whole"))
        for name in ("loss", "loss_scale", "lr", "tokens"):
            differs = [step for step in ours[name].keys() | theirs[name] if repr(ours[name].get(step)) != repr(theirs[name].get(step))]  # by repr, NaN equals NaN
            assert not differs and len(ours[name]) == LONG, f"{name} has {len(ours[name])} values, it differs in the steps {differs[:9]}"
        seen = ours["grad_norm"]
        assert seen and seen == {step: theirs["grad_norm"].get(step) for step in seen}
    return whole, result


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def light_steps(_):
    return equal()


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def light_steps_without_a_clip(_):
    return equal(clip=None)


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def light_micro_batches(_):
    return equal(micro=SEVERAL)


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def skipped_light_steps(_):
    return equal(overflows=(120, 160))


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def skipped_light_micro_batches(_):
    return equal(micro=SEVERAL, clip=None, overflows=(120, 121))


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def a_scaled_loss_that_is_divided(_):
    """Its value before the scale is not known without a division, so all steps are whole."""
    return equal(divisor=2)


@case(finds={"health/loss-non-finite": 150}, level="note", others=True, opens=False, budgeted=True)
def nan_in_a_light_step(_):
    """A note, because the scaler skips the step."""
    return equal(ruined_at=150)
