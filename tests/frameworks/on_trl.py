"""TRL: supervised fine-tuning."""

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from harness import case
from on_transformers import STEPS, Watch, arguments, llama
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
