"""Hugging Face's Trainer, resumed with and without files of its checkpoint, and started from a checkpoint's weights on purpose; torch's DataLoader,
resumed at its place and at its beginning."""

import plumbline
import torch
from torch.utils.data import DataLoader, RandomSampler
from transformers import LlamaForCausalLM

from harness import Wrong, case
from on_transformers import STEPS, finish, fit, llama, logged, resume, resumed
from plumbline.transformers import PlumblineCallback
from small import Language, words


@case(level="warning", finds={"health/optimizer-state": 11}, opens=False)
def resumed_without_the_schedulers_file(_):
    """Trainer then loads neither of them."""
    return resumed("scheduler.pt")


@case(level="warning", finds={"health/optimizer-state": 11}, opens=False)
def resumed_from_weights_alone(_):
    return resumed("optimizer.pt", "scheduler.pt", "rng_state.pth")


@case(level="warning", steps=STEPS, opens=False)
def tuned_from_a_checkpoints_weights(_):
    """A training of its own that begins with these weights on purpose."""
    fit(llama(), None, save_strategy="steps", save_steps=10, max_steps=10)
    callback = PlumblineCallback(every=1)
    trainer = fit(LlamaForCausalLM.from_pretrained("out/checkpoint-10"), [callback])
    return finish(callback, trainer, loss=logged(trainer, "loss"))


@case(reads="checkpoint", steps=2 * 21, level="warning")
def its_folder_resumed_whole():
    resume([], save_strategy="steps", save_steps=10, steps=30)


@case(reads="checkpoint", steps=2 * 21, level="warning", finds={"health/optimizer-state": 10})
def its_folder_resumed_without_the_optimizers_file():
    resume([], ("optimizer.pt",), save_strategy="steps", save_steps=10, steps=30)


def batches_from(first, epoch_of):
    """Yields batches of epochs of 60 steps, from step `first` on. epoch_of: the seed of an epoch's order."""
    rows = words(480)
    for epoch in range(first // 60, 9):
        sampler = RandomSampler(rows, generator=torch.Generator().manual_seed(epoch_of(epoch)))
        for i, batch in enumerate(DataLoader(rows, batch_size=8, sampler=sampler)):
            if 60 * epoch + i >= first:
                yield batch


def in_two_attempts(first_of_second, epoch_of=lambda epoch: epoch, steps=40):
    """Trains `steps` steps, then 60 more in a second attempt, whose data begin with those of step `first_of_second`."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for attempt, first, number in ((0, 0, steps), (1, first_of_second, 60)):
        run = plumbline.init(run="resumed", record="record", every=1, attempt=attempt)
        watched = run.watch(model, optimizer)
        for _, batch in zip(range(number), batches_from(first, epoch_of)):
            model(batch).backward()
            optimizer.step()
            optimizer.zero_grad()
        watched.remove()
        if not run.finish():
            raise Wrong("run.finish() is false")
    return model.state_dict()


@case(level="warning", opens=False)
def a_loader_that_goes_on(_):
    return in_two_attempts(40)


@case(level="warning", finds={"health/repeated-data": 40}, opens=False)
def a_loader_that_begins_again(_):
    return in_two_attempts(0)


@case(level="warning", finds={"health/repeated-data": None}, opens=False)
def a_loader_with_one_seed_for_each_epoch(_):
    return in_two_attempts(130, lambda epoch: 0, steps=130)
