"""TRL's kinds of training, each with its callback: the same bits as without it, and silent. Long."""

import functools
import os

import peft
from datasets import Dataset

from harness import case
from on_transformers import arguments, finish, llama
from on_trl import engine, reinforced, tokenizer
from plumbline.transformers import PlumblineCallback
from small import VOCABULARY
from transformers import LlamaForCausalLM, LlamaForSequenceClassification
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer, RLOOConfig, RLOOTrainer
from trl import SFTConfig, SFTTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.gkd import GKDConfig, GKDTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
ROWS, TRAINED = 48, 12  # rows of data, steps
LOW_RANK = {"r": 4, "target_modules": ["q_proj", "v_proj"]}


def text(first, count):
    return " ".join(f"w{3 + (first * 7 + n * n) % (VOCABULARY - 3)}" for n in range(count))


def pairs():
    return Dataset.from_dict({"prompt": [text(n, 4) for n in range(ROWS)], "chosen": [" " + text(n + 100, 6) for n in range(ROWS)],
                              "rejected": [" " + text(n + 300, 5) for n in range(ROWS)]})  # fmt: skip


def completions():
    return Dataset.from_dict({"prompt": [text(n, 4) for n in range(ROWS)], "completion": [" " + text(n + 100, 6) for n in range(ROWS)]})


def texts():
    return Dataset.from_dict({"text": [text(n, 12) for n in range(ROWS)]})


def labelled():
    rows = completions()
    return rows.add_column("label", [n % 2 == 0 for n in range(ROWS)])


def messages():
    turns = [[{"role": "user", "content": text(n, 4)}, {"role": "assistant", "content": text(n + 100, 6)}] for n in range(ROWS)]
    return Dataset.from_dict({"messages": turns})


def low_rank(task="CAUSAL_LM"):
    return peft.LoraConfig(task_type=task, **LOW_RANK)


def chat_tokenizer():
    made = tokenizer()
    made.chat_template = "{% for m in messages %}<s> {{ m['content'] }} {% endfor %}"
    return made


def stored():
    """The model, loaded from a folder: there a trainer looks for its reference."""
    llama().save_pretrained("policy")
    return LlamaForCausalLM.from_pretrained("policy")


def trained(kind, settings, data, model=None, processing=tokenizer, given=None, **options):
    callback = PlumblineCallback(every=1)
    length = {} if "max_length" in options or not hasattr(settings, "max_length") else {"max_length": 32}
    configured = arguments(settings, **{"bf16": False, "max_steps": TRAINED, "learning_rate": 1e-3, **length, **options})
    others = {"processing_class": processing(), "callbacks": [callback], **(given or {})}
    trainer = kind(model=(model or stored)(), args=configured, train_dataset=data(), **others)
    trainer.train()
    return finish(callback, trainer)


def judge():
    settings = llama().config
    settings.num_labels = 1
    return LlamaForSequenceClassification(settings)


PREFERENCES = ("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired", "apo_zero", "apo_down",
               "discopop", "sft", "sigmoid_norm")  # fmt: skip
SMOOTHED = {"exo_pair": 0.1, "robust": 0.1}
KINDS = {
    "sft_completions": lambda: trained(SFTTrainer, SFTConfig, completions),
    "sft_packed": lambda: trained(SFTTrainer, SFTConfig, texts, packing=True, padding_free=False),
    "sft_dft": lambda: trained(SFTTrainer, SFTConfig, completions, loss_type="dft"),
    "sft_messages": lambda: trained(SFTTrainer, SFTConfig, messages, processing=chat_tokenizer),
    "sft_lora": lambda: trained(SFTTrainer, SFTConfig, texts, given={"peft_config": low_rank()}),
    **{f"dpo_{loss}": functools.partial(trained, DPOTrainer, DPOConfig, pairs, loss_type=[loss], label_smoothing=SMOOTHED.get(loss, 0.0))
       for loss in PREFERENCES},
    "dpo_lora": lambda: trained(DPOTrainer, DPOConfig, pairs, given={"peft_config": low_rank()}, learning_rate=0.03),
    "kto": lambda: trained(KTOTrainer, KTOConfig, labelled),
    "kto_apo": lambda: trained(KTOTrainer, KTOConfig, labelled, loss_type="apo_zero_unpaired"),
    "reward": lambda: trained(RewardTrainer, RewardConfig, pairs, model=judge),
    "cpo": lambda: trained(CPOTrainer, CPOConfig, pairs),
    "cpo_simpo": lambda: trained(CPOTrainer, CPOConfig, pairs, loss_type="simpo", cpo_alpha=0.0),
    "orpo": lambda: trained(ORPOTrainer, ORPOConfig, pairs),
    "gkd": lambda: trained(GKDTrainer, GKDConfig, messages, processing=chat_tokenizer, given={"teacher_model": llama()}, max_new_tokens=8),
    **{f"grpo_{loss}": functools.partial(reinforced, GRPOTrainer, GRPOConfig, engine(1.0), loss_type=loss)
       for loss in ("grpo", "dr_grpo", "bnpo", "cispo")},
    "rloo_reference": lambda: reinforced(RLOOTrainer, RLOOConfig, beta=0.05),
}  # fmt: skip


def make(name, training):
    def run(_):
        return training()

    run.__name__ = name
    case(level="warning", opens=False)(run)


for each, how in KINDS.items():
    make(each, how)
