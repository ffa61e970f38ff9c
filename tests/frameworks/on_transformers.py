"""Hugging Face's Trainer: watched from a callback when the training begins."""

import peft
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from harness import case
from small import VOCABULARY, words

STEPS = 20


class Watch(TrainerCallback):
    def __init__(self, run):
        self.run, self.losses = run, []

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
        self.run.watch(model, optimizer)

    def on_log(self, args, state, control, logs=None, **_):
        self.losses.append(logs.get("loss"))


def llama():
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                    max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    )  # fmt: skip


def arguments(kind=TrainingArguments, **options):
    return kind(output_dir="out", max_steps=STEPS, per_device_train_batch_size=4, use_cpu=True, logging_steps=1, disable_tqdm=True,
                dataloader_pin_memory=False, **{"report_to": [], "save_strategy": "no", **options})  # fmt: skip


def rows(number):
    return [{"input_ids": row, "labels": row} for row in words(number)]


def train(watch, model, **options):
    trainer = Trainer(model=model, args=arguments(**options), train_dataset=rows(STEPS * 4), callbacks=[watch] if watch else [])
    trainer.train()
    return watch and (watch.losses, model.state_dict())


@case(steps=STEPS)
def trainer(run):
    return train(Watch(run), llama())


@case()
def lora(run):
    model = peft.get_peft_model(llama(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    return train(Watch(run), model, learning_rate=1e-3)


@case(reads="tensorboard", steps=STEPS)
def its_tensorboard_files():
    train(None, llama(), report_to=["tensorboard"])


@case(reads="checkpoint", steps=2 * 21)  # tensors of two checkpoints
def its_folder():
    train(None, llama(), save_strategy="steps", save_steps=10)
