"""Hugging Face's Trainer: watched from a callback when the training begins."""

import os
import pathlib

import peft
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DeepseekV4Config,
    DeepseekV4ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PhimoeConfig,
    PhimoeForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from harness import audit, case, expect
from plumbline.transformers import PlumblineCallback
from small import VOCABULARY, finish_light, words

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
    return kind(output_dir="out", use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False,
                **{"per_device_train_batch_size": 4, "logging_steps": 1, "max_steps": STEPS, "report_to": [], "save_strategy": "no",
                   **options})  # fmt: skip


def rows(number):
    return [{"input_ids": row, "labels": row} for row in words(number)]


def train(watch, model, **options):
    trainer = Trainer(model=model, args=arguments(**options), train_dataset=rows(STEPS * 4), callbacks=[watch] if watch else [])
    trainer.train()
    return watch and (watch.losses, model.state_dict())


def logged(trainer, name):
    """{step: value} of what the Trainer logged."""
    return {row["step"]: row[name] for row in trainer.state.log_history if name in row}


def fit(model, callbacks, data=None, evaluate=False, kind=Trainer, **options):
    data = rows(STEPS * 4 * options.get("gradient_accumulation_steps", 1)) if data is None else data
    trainer = kind(model=model, args=arguments(**options), train_dataset=data, eval_dataset=data[:8] if evaluate else None,
                   callbacks=callbacks)  # fmt: skip
    trainer.train()
    return trainer


def finish(callback, trainer, **series):
    """With the callback's own run: it is recorded in out/plumbline."""
    if type(callback.run).__name__ == "Run":
        if not callback.run.finish():
            raise AssertionError("run.finish() is false")
        os.rename("out/plumbline", "record")
        expect(**series)
    return trainer.state.log_history[-1].get("train_loss"), trainer.model.state_dict()


@case(steps=STEPS, level="warning")
def trainer(run):
    return train(Watch(run), llama())


@case(level="warning", states=r"8 trained parameters, AdamW, LoRA r=4 on q_proj, v_proj \(4 adapters\), base frozen$")
def lora(run):
    model = peft.get_peft_model(llama(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    return train(Watch(run), model, learning_rate=1e-3)


@case(steps=STEPS, level="warning", states="AdamW$", opens=False)
def by_callback(_):
    callback = PlumblineCallback()
    trainer = fit(llama(), [callback], max_grad_norm=0.1)
    return finish(callback, trainer, loss=logged(trainer, "loss"), grad_norm=logged(trainer, "grad_norm"), tokens=dict.fromkeys(range(1, STEPS + 1), 64))


@case(steps=STEPS, level="warning", opens=False)
def by_callback_micro_batches_and_evaluation(_):
    callback = PlumblineCallback(run="named")
    trainer = fit(llama(), [callback], evaluate=True, gradient_accumulation_steps=4, eval_strategy="steps", eval_steps=5)
    return finish(callback, trainer, loss=logged(trainer, "loss"), **{"eval/loss": logged(trainer, "eval_loss")})


@case(steps=STEPS, level="warning", opens=False)
def by_report_to(_):
    trainer = fit(llama(), None, report_to=["plumbline"])
    callback = next(c for c in trainer.callback_handler.callbacks if isinstance(c, PlumblineCallback))
    return finish(callback, trainer, loss=logged(trainer, "loss"))


LONG = 100


def all_pass(callback, trainer, rule, series):
    """Finishes the run, and requires that the rule passes these series."""
    results = finish(callback, trainer)
    if type(callback.run).__name__ == "Run":
        verdicts = {v["site"].get("op"): v["verdict"] for v in audit(pathlib.Path("."))["verdicts"] if v["rule"] == rule}
        if verdicts != dict.fromkeys(series, "pass"):
            raise AssertionError(f"{rule}: {verdicts}")
    return results


@case(level="warning", opens=False)
def numbers_that_the_trainer_logs(_):
    callback = PlumblineCallback()
    trainer = fit(llama(), [callback], max_steps=40, logging_steps=2, gradient_accumulation_steps=2, max_grad_norm=0.1, data=rows(64))
    return all_pass(callback, trainer, "health/metric-truth", ("loss", "grad_norm", "learning_rate"))


class Lights(TrainerCallback):
    """Counts the light steps: nothing is due in most steps under the default budget."""

    def __init__(self, watching):
        self.watching, self.count = watching, 0

    def on_pre_optimizer_step(self, args, state, control, **_):
        self.count += getattr(self.watching._session._watched, "light", None) is not None


def light_training(micro):
    callback = PlumblineCallback(budget=0.01)
    lights, data = Lights(callback), rows(16 * micro)  # they can be learned
    options = {"max_steps": LONG, "gradient_accumulation_steps": micro, "max_grad_norm": 0.1, "learning_rate": 1e-3}
    trainer = fit(llama(), [callback, lights], data=data, **options)
    if type(callback.run).__name__ == "Run":
        finish_light(callback.run, lights.count, LONG)
    tokens = dict.fromkeys(range(1, LONG + 1), 64 * micro)
    return finish(callback, trainer, loss=logged(trainer, "loss"), grad_norm=logged(trainer, "grad_norm"), tokens=tokens)


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def light_steps(_):
    return light_training(1)


@case(steps=LONG, level="warning", opens=False, budgeted=True)
def light_micro_batches(_):
    return light_training(2)


def adapted(checkpointing, inputs_require):
    model = peft.get_peft_model(llama(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
        model.enable_input_require_grads() if inputs_require else model.base_model.model.disable_input_require_grads()
    return model


@case(level="warning", opens=False)
def trained_twice(_):
    """A second train() of the same Trainer starts at step 1 again: another attempt of the run."""
    callback = PlumblineCallback()
    trainer = fit(llama(), [callback], max_steps=5)
    trainer.train()
    return finish(callback, trainer)


class Unreached(Trainer):
    """Reentrant checkpointing without inputs that require a gradient: the loss has no path to the adapter."""

    def compute_loss(self, *arguments, **options):
        return super().compute_loss(*arguments, **options) + torch.zeros((), requires_grad=True)


@case(level="warning", finds={"health/no-gradient": 1}, opens=False)
def lora_under_reentrant_checkpointing(_):
    callback = PlumblineCallback()
    trainer = fit(adapted(True, False), [callback], kind=Unreached, learning_rate=1e-3)
    return finish(callback, trainer)


@case(level="warning", opens=False)
def lora_under_reentrant_checkpointing_trained(_):
    callback = PlumblineCallback()
    trainer = fit(adapted(True, True), [callback], learning_rate=1e-3)
    return finish(callback, trainer)


@case(reads="tensorboard", steps=STEPS)
def its_tensorboard_files():
    train(None, llama(), report_to=["tensorboard"])


@case(reads="checkpoint", steps=2 * 21, level="warning", notes="optimizer state: 21 of 21 parameters named")  # tensors of two checkpoints
def its_folder():
    train(None, llama(), save_strategy="steps", save_steps=10)


class Poisoned(Trainer):
    def compute_loss(self, *arguments, **options):
        return super().compute_loss(*arguments, **options) * (float("nan") if self.state.global_step == 14 else 1)


@case(reads="checkpoint", steps=2 * 21, finds={"health/loss-non-finite": 15}, notes="precision/non-finite of step 20 is not repeated")
def its_folder_with_a_loss_that_is_nan():
    """State, event files and the weights of a checkpoint show one fault."""
    options = {"save_strategy": "steps", "save_steps": 10, "max_grad_norm": 0.0, "logging_nan_inf_filter": False, "report_to": ["tensorboard"]}
    fit(llama(), None, kind=Poisoned, **options)


@case(reads="checkpoint", steps=6 * 8, level="warning", finds={"health/unchanged-tensor": 10}, notes="health/gradient-vanish.* not repeated: the adapters")
def its_folder_of_adapters_that_are_not_trained():
    """The loss is flat, and the gradient norm is 0: the same fault."""
    fit(adapted(True, False), None, rows(240), kind=Unreached, learning_rate=1e-3, save_strategy="steps", save_steps=10, max_steps=60)


def resume(callbacks, without=(), steps=20, **options):
    """Goes on from the checkpoint of step 10, as a Trainer of its own. `without`: files that are gone from it."""
    fit(llama(), None, save_strategy="steps", save_steps=10, max_steps=10)
    for name in without:
        os.remove(f"out/checkpoint-10/{name}")
    trainer = Trainer(model=llama(), args=arguments(max_steps=steps, **options), train_dataset=rows(80), callbacks=callbacks)
    trainer.train(resume_from_checkpoint="out/checkpoint-10")
    return trainer


def resumed(*without):
    callback = PlumblineCallback(every=1)
    return finish(callback, resume([callback], without))


@case(level="warning", opens=False)
def resumed_whole(_):
    return resumed()


@case(level="warning", finds={"health/optimizer-state": 11}, opens=False)
def resumed_without_the_optimizers_file(_):
    return resumed("optimizer.pt")


def bert():
    return BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                                      max_position_embeddings=32, pad_token_id=0))  # fmt: skip


class Divides(Trainer):
    """The trainer's own switch for losses that are not divided yet."""

    loss_is_scaled_for_ga = False


@case(level="warning", finds={"health/accumulation-scale": 2}, opens=False)
def micro_batches_are_not_divided(_):
    callback = PlumblineCallback()
    return finish(callback, fit(bert(), [callback], gradient_accumulation_steps=4))


@case(level="warning", opens=False)
def micro_batches_are_divided(_):
    callback = PlumblineCallback()
    return finish(callback, fit(bert(), [callback], kind=Divides, gradient_accumulation_steps=4))


class DividesAfterwards(TrainerCallback):
    """The sum of the gradients is divided in front of the step."""

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        for p in model.parameters():
            p.grad /= 4


# The Trainer logs the sum of the micro-batches' means: 4 times the mean over the step.
@case(level="warning", opens=False, finds={"health/metric-truth": None})
def gradients_are_divided_afterwards(_):
    callback = PlumblineCallback()
    return finish(callback, fit(bert(), [callback, DividesAfterwards()], gradient_accumulation_steps=4, max_grad_norm=0))


def mixture(kind, config, **options):
    return kind(config(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                       max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, num_experts_per_tok=2, **options))  # fmt: skip


def routed(model):
    callback = PlumblineCallback()
    return finish(callback, fit(model, [callback]))


@case(states=r"2 routers \(model.layers.0.mlp and 1 more: top-2 of 4, Mixtral-like structure\)$", steps=STEPS, opens=False)
def mixture_with_a_small_vocabulary(_):
    return routed(mixture(MixtralForCausalLM, MixtralConfig, num_local_experts=4))


@case(states=r"2 routers \(model.layers.0.mlp and 1 more: top-2 of 4, Mixtral-like structure\)$", steps=STEPS, opens=False)
def mixture_whose_gate_is_a_router(_):
    return routed(mixture(PhimoeForCausalLM, PhimoeConfig, num_local_experts=4))


def labelled(change, level="warning"):
    """Fine-tuning on rows that `change(ids, labels, mask)` has made."""
    data = []
    for number, ids in enumerate(words(STEPS * 4)):
        row = {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}
        change(number, row)
        data.append(row)
    callback = PlumblineCallback()
    return finish(callback, fit(llama(), [callback], data=data, train_sampling_strategy="sequential"))


def unlabel(row):
    row["labels"][:] = -100


@case(level="warning", finds={"health/batch-facts": 1}, states="2 rows have no valid label", opens=False)
def rows_without_a_label(_):
    return labelled(lambda number, row: unlabel(row) if number in (1, 2) else None)


@case(level="warning", finds={"health/batch-facts": 3, "health/loss-non-finite": 3}, states="4 rows have no valid label", opens=False)
def a_batch_without_a_label(_):
    return labelled(lambda number, row: unlabel(row) if 8 <= number < 12 else None)


@case(level="warning", finds={"health/batch-facts": 1}, states="labels are at positions that the attention mask excludes", opens=False)
def padding_is_learned(_):
    return labelled(lambda number, row: row["attention_mask"][-4:].zero_())


@case(level="warning", opens=False)
def padding_is_ignored(_):
    def change(number, row):
        row["attention_mask"][-4:] = 0
        row["labels"][-4:] = -100

    return labelled(change)


@case(level="error", finds={"health/batch-facts": 2}, states="the model shifts labels again", opens=False)
def labels_are_shifted_twice(_):
    def change(number, row):
        row["labels"] = torch.cat([row["input_ids"][1:], torch.tensor([-100])])

    return labelled(change)


@case(steps=STEPS, level="warning", opens=False)
def stop_on_without_a_server(_):
    callback = PlumblineCallback(stop_on="error")
    return finish(callback, fit(llama(), [callback]))


@case(states=r"1 router \(model.layers.1.mlp: top-2 of 4, Mixtral-like structure\)$", steps=STEPS, opens=False)
def deepseek_v4_whose_first_layer_is_a_table(_):
    config = DeepseekV4Config(vocab_size=VOCABULARY, hidden_size=32, moe_intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                              max_position_embeddings=64, pad_token_id=0, num_experts_per_tok=2, n_routed_experts=4, head_dim=16, q_lora_rank=16,
                              o_lora_rank=16, o_groups=2, index_n_heads=2, index_head_dim=16, index_topk=8, mlp_layer_types=["hash_moe", "moe"],
                              layer_types=["sliding_attention", "sliding_attention"])  # fmt: skip
    return routed(DeepseekV4ForCausalLM(config))
