"""Real log files of experiment trackers, which plumb audit reads."""

import json
import math
import os

import tensorboardX

from harness import case

STEPS = 200


def losses():
    return [3.0 * math.exp(-step / 80) + 0.5 + 0.01 * math.sin(7 * step) for step in range(STEPS)]


@case(reads="tensorboard", steps=STEPS)
def tensorboard_x():
    with tensorboardX.SummaryWriter("logs") as writer:
        for step, loss in enumerate(losses()):
            writer.add_scalar("train/loss", loss, step)


@case(reads="wandb", steps=STEPS)
def wandb():
    os.environ["WANDB_MODE"] = "offline"
    import wandb

    run = wandb.init(project="frameworks", dir=".", settings=wandb.Settings(console="off", disable_git=True))
    for step, loss in enumerate(losses()):
        run.log({"train/loss": loss}, step=step)
    run.finish()


@case(reads="csv", steps=STEPS)
def lightning_csv():
    from lightning.pytorch.loggers import CSVLogger

    logger = CSVLogger("logs")
    for step, loss in enumerate(losses()):
        logger.log_metrics({"train/loss": loss}, step=step)
    logger.save()


@case(reads="jsonl", steps=STEPS)
def json_lines():
    with open("log.jsonl", "w", encoding="utf-8") as file:
        for step, loss in enumerate(losses()):
            print(json.dumps({"step": step, "train/loss": loss}), file=file)
