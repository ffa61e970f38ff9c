"""Hugging Face's Trainer, resumed with and without files of its checkpoint, and started from a checkpoint's weights on purpose."""

from transformers import LlamaForCausalLM

from harness import case
from on_transformers import STEPS, finish, fit, llama, logged, resume, resumed
from plumbline.transformers import PlumblineCallback


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
