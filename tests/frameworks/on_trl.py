"""TRL: supervised fine-tuning; GRPO and RLOO, whose rollouts the callback records."""

import os

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from plumbline.transformers import PlumblineCallback
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer, SFTConfig, SFTTrainer

from harness import case
from on_transformers import STEPS, Watch, arguments, finish, llama
from small import VOCABULARY, words


def tokenizer():
    names = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{n}": n for n in range(3, VOCABULARY)}}
    model = Tokenizer(models.WordLevel(names, unk_token="<s>"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


@case(level="warning")
def supervised(run):
    watch, model = Watch(run), llama()
    texts = [" ".join(f"w{max(3, int(n))}" for n in row) for row in words(STEPS * 4)]
    SFTTrainer(
        model=model, args=arguments(SFTConfig, max_length=32, bf16=False), train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=tokenizer(), callbacks=[watch],
    ).train()  # fmt: skip
    return watch.losses, model.state_dict()


PROMPTS, GENERATIONS, DRAWN = 8, 4, 12  # prompts; completions of a step; tokens of a completion


def reward(completion_ids, **_):
    return [float(sum(token % 2 for token in ids)) / len(ids) for ids in completion_ids]


def engine(temperature):
    """A stand-in for the inference engine: it draws from the trainer's model, and scores at `temperature`."""

    def draw(prompts, trainer):
        model, drawn, scored = trainer.accelerator.unwrap_model(trainer.model), [], []
        ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
        with torch.no_grad():
            for prompt in ids:
                row, logps = list(prompt), []
                for _ in range(DRAWN):
                    logits = model(torch.tensor([row])).logits[0, -1].float()
                    token = int(torch.multinomial((logits / temperature).softmax(-1), 1))
                    logps.append(float((logits / temperature).log_softmax(-1)[token]))
                    row.append(token)
                drawn.append(row[len(prompt) :])
                scored.append(logps)
        return {"prompt_ids": ids, "completion_ids": drawn, "logprobs": scored}

    return draw


def reinforced(kind, settings, rollout_func=None, steps=10, own_reference=False, **options):
    """`own_reference`: the reference model is the policy itself."""
    torch.manual_seed(0)
    model = llama()
    with torch.no_grad():
        model.lm_head.weight.mul_(40)  # probabilities that differ
    if "beta" in options:  # the reference is loaded from where the policy comes from
        model.save_pretrained("policy")
        model = LlamaForCausalLM.from_pretrained("policy")
    callback = PlumblineCallback(every=1)
    data = Dataset.from_dict({"prompt": [f"w{3 + n} w{4 + n} w{5 + n}" for n in range(PROMPTS)]})
    given = {"rollout_func": rollout_func} if rollout_func else {}
    settings = arguments(settings, max_steps=steps, num_generations=GENERATIONS, max_completion_length=DRAWN, bf16=False, learning_rate=1e-4, **options)
    trainer = kind(model=model, args=settings, reward_funcs=reward, train_dataset=data, processing_class=tokenizer(), callbacks=[callback], **given)
    if own_reference:
        trainer.ref_model = trainer.model
    trainer.train()
    return finish(callback, trainer)


os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"


@case(level="warning", opens=False)
def grpo(_):
    return reinforced(GRPOTrainer, GRPOConfig)


@case(level="warning", opens=False)
def rloo(_):
    return reinforced(RLOOTrainer, RLOOConfig, beta=0.0)


@case(level="warning", opens=False, records={"logprobs": 10})
def grpo_with_an_engine(_):
    return reinforced(GRPOTrainer, GRPOConfig, engine(1.0))


@case(level="warning", opens=False, records={"logprobs": 10}, finds={"drift/logit-drift": None})
def grpo_whose_engine_is_at_another_temperature(_):
    return reinforced(GRPOTrainer, GRPOConfig, engine(0.7))


@case(level="warning", opens=False)
def grpo_with_a_reference(_):
    return reinforced(GRPOTrainer, GRPOConfig, beta=0.04)


@case(level="warning", opens=False, finds={"health/batch-facts": 1})
def grpo_whose_reference_is_the_policy(_):
    return reinforced(GRPOTrainer, GRPOConfig, beta=0.04, own_reference=True)
