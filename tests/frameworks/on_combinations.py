"""Set-ups by combination: framework x model x precision x micro-batches x clip x schedule x optimizer; healthy ones, and ones with a planted fault.

The combinations are drawn once, with a fixed seed; each name states its own.
"""

import itertools
import random

import lightning
import peft
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Trainer

from harness import case
from on_transformers import arguments
from plumbline.lightning import PlumblineCallback as LightningCallback
from plumbline.transformers import PlumblineCallback
from small import VOCABULARY, Language, words

STEPS, BAD = 12, 5  # the step with the fault, counted from 0
HEALTHY = {"plain": 54, "transformers": 60, "accelerate": 18, "lightning": 18}
FAULTY = {"plain": 56, "transformers": 40, "accelerate": 16, "lightning": 12}


# ---- models -------------------------------------------------------------------------------------


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mlp = nn.Embedding(VOCABULARY, 32), nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, VOCABULARY))

    def forward(self, ids):
        return nn.functional.cross_entropy(self.mlp(self.embed(ids[:, :-1])).flatten(0, 1), ids[:, 1:].flatten())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.gru, self.head = nn.Embedding(VOCABULARY, 32), nn.GRU(32, 32, batch_first=True), nn.Linear(32, VOCABULARY)

    def forward(self, ids):
        return nn.functional.cross_entropy(self.head(self.gru(self.embed(ids[:, :-1]))[0]).flatten(0, 1), ids[:, 1:].flatten())


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.conv, self.norm, self.head = nn.Embedding(VOCABULARY, 32), nn.Conv1d(32, 32, 3), nn.BatchNorm1d(32), nn.Linear(32, VOCABULARY)

    def forward(self, ids):
        hidden = self.norm(self.conv(nn.functional.pad(self.embed(ids[:, :-1]).transpose(1, 2), (2, 0)))).transpose(1, 2)
        return nn.functional.cross_entropy(self.head(nn.functional.gelu(hidden)).flatten(0, 1), ids[:, 1:].flatten())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(VOCABULARY, 32), nn.LayerNorm(32)
        self.head = nn.Linear(32, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return nn.functional.cross_entropy(self.head(self.norm(self.embed(ids[:, :-1]))).flatten(0, 1), ids[:, 1:].flatten())


PLAIN = {"transformer": Language, "perceptron": Perceptron, "gru": Recurrent, "convolution": Convolution, "tied": Tied}
SMALL = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32)


def llama(**options):
    return LlamaForCausalLM(LlamaConfig(**SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, **options))


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=2, n_positions=32, bos_token_id=1, eos_token_id=2))


def lora():
    return peft.get_peft_model(llama(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))


def bert():
    return BertForMaskedLM(BertConfig(**SMALL, pad_token_id=0))


OF_TRANSFORMERS = {"llama": llama, "llama-tied": lambda: llama(tie_word_embeddings=True), "gqa": lambda: llama(num_key_value_heads=1), "gpt2": gpt2, "lora": lora}
OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3), "adam": lambda p: torch.optim.Adam(p, lr=1e-3), "amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-3, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2), "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True), "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
}  # fmt: skip
SCHEDULES = {
    "constant": lambda o: None,
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 2 * STEPS),
    "warm-up": lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=4),
    "one-cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 2e-3, total_steps=2 * STEPS),
}


# ---- faults -------------------------------------------------------------------------------------


class Faults:
    """What a set-up with a fault does to its loss, optimizer or rows; names: the rule that must find it, and the step counted from 0."""

    RULES = {
        "nan": ("health/loss-non-finite", BAD), "infinite": ("health/loss-non-finite", BAD), "made-anew": ("health/no-gradient", 0),
        "cleared": ("health/no-gradient", 0), "other-optimizer": ("health/no-gradient", 0), "rate-zero": ("health/learning-rate", 0),
        "unlabelled": ("health/batch-facts", 0), "padding": ("health/batch-facts", 0), "shifted": ("health/batch-facts", None), "undivided": ("health/accumulation-scale", 1),
    }  # fmt: skip

    def __init__(self, name):
        self.name = name

    def loss(self, loss, step):
        if self.name in ("nan", "infinite") and step == BAD:
            return loss * float(self.name[:3])
        return torch.tensor(loss.item(), requires_grad=True) if self.name == "made-anew" else loss

    def before_step(self, optimizer):
        if self.name == "cleared":
            optimizer.zero_grad()

    def optimizer(self, model, make):
        optimizer = make((type(model)() if self.name == "other-optimizer" else model).parameters())
        if self.name == "rate-zero":
            for group in optimizer.param_groups:
                group["lr"] = 0.0
        return optimizer

    def row(self, ids):
        row = {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}
        if self.name == "unlabelled" and int(ids[0]) % 2:
            row["labels"][:] = -100
        if self.name == "padding":
            row["attention_mask"][-3:] = 0
        if self.name == "shifted":
            row["labels"] = torch.cat([ids[1:], torch.tensor([-100])])
        return row


# ---- one set-up of each framework ---------------------------------------------------------------


def plain(run, fault, model, optimizer, micro, clip, schedule, precision):
    model = PLAIN[model]()
    optimizer = fault.optimizer(model, OPTIMIZERS[optimizer])
    scheduler = None if fault.name == "rate-zero" else SCHEDULES[schedule](optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=precision == "scaled")
    run.watch(model, optimizer)
    losses = []
    for step, batch in enumerate(words(STEPS * 8).split(8)):
        for part in batch.chunk(micro):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                loss = model(part) / micro
            scaler.scale(fault.loss(loss, step)).backward()
            losses.append(loss.detach())
        scaler.unscale_(optimizer)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        fault.before_step(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if scheduler is not None:
            scheduler.step()
    return losses, model.state_dict()


def accelerated(run, fault, model, optimizer, micro, clip, schedule, precision):
    AcceleratorState._reset_state()
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=micro, mixed_precision="bf16" if precision == "bf16" else "no")
    model = PLAIN[model]()
    optimizer = fault.optimizer(model, OPTIMIZERS[optimizer])
    data = torch.utils.data.DataLoader(words(STEPS * micro * 8), batch_size=8)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    scheduler = None if fault.name == "rate-zero" else SCHEDULES[schedule](optimizer.optimizer)
    run.watch(model, optimizer)
    losses = []
    for number, batch in enumerate(data):
        with accelerator.accumulate(model):
            loss = fault.loss(model(batch), number // micro)
            accelerator.backward(loss)
            if clip and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), clip)
            fault.before_step(optimizer)
            optimizer.step()
            optimizer.zero_grad()
            if scheduler is not None and accelerator.sync_gradients:
                scheduler.step()
            losses.append(loss.detach())
    return losses, accelerator.unwrap_model(model).state_dict()


class Module(lightning.LightningModule):
    def __init__(self, fault, model, optimizer, schedule):
        super().__init__()
        self.model, self.fault, self.losses, self.given = PLAIN[model](), fault, [], (optimizer, schedule)

    def training_step(self, batch, number):
        loss = self.model(batch)
        self.losses.append(loss.detach().clone())
        return self.fault.loss(loss, self.trainer.global_step)

    def on_before_optimizer_step(self, optimizer):
        self.fault.before_step(optimizer)

    def configure_optimizers(self):
        optimizer = self.fault.optimizer(self.model, OPTIMIZERS[self.given[0]])
        scheduler = None if self.fault.name == "rate-zero" else SCHEDULES[self.given[1]](optimizer)
        return optimizer if scheduler is None else [[optimizer], [{"scheduler": scheduler, "interval": "step"}]]


def of_lightning(_, fault, model, optimizer, micro, clip, schedule, precision):
    callback, module = LightningCallback(record="record", run="combination", every=1), Module(fault, model, optimizer, schedule)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, callbacks=[callback], enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        logger=False, max_steps=STEPS, accumulate_grad_batches=micro, gradient_clip_val=clip or None, precision="bf16-mixed" if precision == "bf16" else "32-true",
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(words(STEPS * micro * 8), batch_size=8))
    ends(callback)
    return module.losses, module.model.state_dict()


class Planted(Trainer):
    """Its loss and its optimizer are the fault's."""

    fault = optimizer_of = None

    def compute_loss(self, *arguments, **options):
        return self.fault.loss(super().compute_loss(*arguments, **options), self.state.global_step)

    def create_optimizer(self, *arguments, **options):
        if self.fault.name == "other-optimizer":
            self.optimizer = torch.optim.AdamW(self.optimizer_of().parameters(), lr=1e-3)
        return super().create_optimizer(*arguments, **options)


def of_transformers(_, fault, model, schedule, micro, clip, checkpointing, precision):
    make = bert if fault.name == "undivided" else OF_TRANSFORMERS[model]
    model = make()
    if checkpointing and hasattr(model, "enable_input_require_grads"):
        model.enable_input_require_grads()
    callback = PlumblineCallback(record="record", run="combination", every=1)
    options = arguments(max_steps=STEPS, lr_scheduler_type=schedule, warmup_steps=2 if "warmup" in schedule else 0, gradient_accumulation_steps=micro, max_grad_norm=clip,
                        gradient_checkpointing=checkpointing, bf16=precision == "bf16", learning_rate=0.0 if fault.name == "rate-zero" else 1e-3)  # fmt: skip
    trainer = Planted(model=model, args=options, train_dataset=[fault.row(ids) for ids in words(STEPS * 4 * micro)], callbacks=[callback])
    trainer.fault, trainer.optimizer_of = fault, make
    trainer.train()
    ends(callback)
    return trainer.state.log_history[-1].get("train_loss"), trainer.model.state_dict()


def ends(callback):
    if type(callback.run).__name__ == "Run" and not callback.run.finish():
        raise AssertionError("run.finish() is false")


# ---- the combinations ---------------------------------------------------------------------------

LOOPS = {"model": list(PLAIN), "optimizer": list(OPTIMIZERS), "micro": [1, 4], "clip": [0.0, 0.1, 1.0], "schedule": list(SCHEDULES), "precision": ["fp32", "bf16", "scaled"]}
TRAINER = {"model": list(OF_TRANSFORMERS), "schedule": ["linear", "cosine", "constant", "constant_with_warmup"], "micro": [1, 2, 4], "clip": [0.0, 0.1, 1.0],
           "checkpointing": [False, True], "precision": ["fp32", "bf16"]}  # fmt: skip
KINDS = {"plain": (plain, LOOPS), "transformers": (of_transformers, TRAINER), "accelerate": (accelerated, LOOPS), "lightning": (of_lightning, LOOPS)}
PLANTED = {
    "plain": ("nan", "infinite", "made-anew", "cleared", "other-optimizer", "rate-zero"), "accelerate": ("nan", "made-anew", "other-optimizer", "rate-zero"),
    "lightning": ("nan", "made-anew", "cleared", "other-optimizer"), "transformers": ("nan", "unlabelled", "padding", "shifted", "undivided", "made-anew", "other-optimizer", "rate-zero"),
}  # fmt: skip


def drawn(space, number, seed):
    every = list(itertools.product(*space.values()))
    random.Random(seed).shuffle(every)
    return [dict(zip(space, one)) for one in every[:number]]


def fits(kind, fault, setup):
    """Adjusts a set-up to its fault."""
    setup = dict(setup)
    if fault == "undivided":
        setup.update(micro=4, clip=1.0, checkpointing=False, model="bert")
    if fault in ("nan", "infinite") and setup.get("precision") == "scaled":
        setup["precision"] = "fp32"  # a scaler would skip the step
    if kind == "plain" and fault in ("made-anew", "cleared", "other-optimizer") and setup["precision"] == "scaled":
        setup["precision"] = "bf16"  # a scaler refuses gradients that are not there
    if kind != "plain" and setup.get("precision") == "scaled":
        setup["precision"] = "fp32"
    return setup


def declare(kind, fault, setup, number):
    train, _ = KINDS[kind]

    def one(run):
        return train(run, Faults(fault), **setup)

    words_of = [str(value).lower() if not isinstance(value, bool) else ("checkpointing" if value else "kept") for value in setup.values()]
    one.__name__ = "_".join([kind, f"{number:02}", *([fault] if fault else []), *words_of])
    rule, step = Faults.RULES[fault] if fault else (None, None)
    if step is not None and kind == "transformers":
        step += 1  # its steps begin at 1
        step += fault == "other-optimizer" and "warmup" in setup["schedule"]  # the first one has a rate of 0
    step = None if fault in ("unlabelled", "undivided") else step
    opens = kind in ("plain", "accelerate")
    case(level="warning", finds={rule: step} if rule else {}, others=bool(fault), opens=opens)(one)


for _kind, (_train, _space) in KINDS.items():
    for _number, _setup in enumerate(drawn(_space, HEALTHY[_kind], 1)):
        declare(_kind, None, fits(_kind, None, _setup), _number)
    for _number, _setup in enumerate(drawn(_space, FAULTY[_kind], 2)):
        _fault = PLANTED[_kind][_number % len(PLANTED[_kind])]
        declare(_kind, _fault, fits(_kind, _fault, _setup), _number)
