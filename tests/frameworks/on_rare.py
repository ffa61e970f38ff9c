"""What trainers do rarely: a gradient that is 0 by symmetry, a game whose sides are not kept apart, updates without what was meant, an
optimizer for each parameter, Lightning's search for a rate, a run that has ended, eval mode that is left on."""

import gc
import os

import lightning
import torch
from accelerate import Accelerator
from lightning.pytorch.tuner import Tuner
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from harness import Wrong, case, expect
from on_lightning import Module
from on_transformers import arguments
from on_transformers import Trainer as HuggingFace
from plumbline.lightning import PlumblineCallback
from small import VOCABULARY, Language, batches, words

STEPS = 30


# ---- a gradient that is 0 by symmetry --------------------------------------------------------------


def bert(dtype):
    model = BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                                       max_position_embeddings=32, pad_token_id=0))  # fmt: skip
    for name, p in model.named_parameters():
        if name.endswith("key.bias"):  # as of a model that was trained before
            nn.init.uniform_(p, 0.25, 0.5)
    return model.to(dtype)


def of_bert(run, optimizer_of, dtype=torch.float32):
    """The softmax over keys does not see what is added to all of them: a key's bias gets rounding errors for a gradient."""
    model = bert(dtype)
    optimizer = optimizer_of(model.parameters())
    run.watch(model, optimizer)
    for batch in batches(STEPS):
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        model.zero_grad()
    return model.state_dict()


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-2)


def adafactor(parameters):
    return torch.optim.Adafactor(parameters, lr=1e-3)


class Own(torch.optim.Optimizer):
    """Plain descent, which Plumbline does not know by its class."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-2})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p -= group["lr"] * p.grad


@case(level="warning")
def key_bias_under_an_optimizer_of_ones_own(run):
    return of_bert(run, Own)


@case(level="warning")
def key_bias_under_adamw(run):
    return of_bert(run, adamw)


@case(level="warning")
def key_bias_under_sgd(run):
    return of_bert(run, sgd)


@case(level="warning")
def key_bias_under_another_optimizer(run):
    return of_bert(run, adafactor)


@case(level="warning", finds={"precision/lost-update": 0})
def key_bias_in_bf16(run):
    """Other weights lose their updates."""
    return of_bert(run, sgd, torch.bfloat16)


@case(reads="checkpoint", steps=4 * 40, level="warning")
def key_bias_in_checkpoints():
    data = [{"input_ids": row, "labels": row} for row in words(4 * 40)]
    settings = arguments(save_strategy="steps", save_steps=10, max_steps=40, learning_rate=1e-4)
    HuggingFace(model=bert(torch.float32), args=settings, train_dataset=data).train()


# ---- a game ---------------------------------------------------------------------------------------


def game(run, toggled, steps=60):
    """One side makes points, the other one judges them. Not `toggled`: the judge is updated with what the maker's loss has left in it."""
    generator = torch.Generator().manual_seed(3)
    maker, judge = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)), nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    makes, judges = (torch.optim.Adam(model.parameters(), lr=1e-3) for model in (maker, judge))
    run.watch(nn.ModuleDict({"maker": maker, "judge": judge}), [makes, judges])
    score, losses = nn.functional.binary_cross_entropy_with_logits, []
    for _ in range(steps):
        real = torch.randn(32, 2, generator=generator) + 2
        made = maker(torch.randn(32, 4, generator=generator))
        if toggled:
            judge.requires_grad_(False)
        loss = score(judge(made), torch.ones(32, 1))
        loss.backward()
        judge.requires_grad_(True)
        makes.step()
        makes.zero_grad()
        other = score(judge(real), torch.ones(32, 1)) + score(judge(made.detach()), torch.zeros(32, 1))
        other.backward()
        judges.step()
        judges.zero_grad()
        losses += [loss.detach(), other.detach()]
    return losses, maker.state_dict(), judge.state_dict()


@case(level="warning")
def game_of_two_sides(run):
    return game(run, True)


@case(level="warning", finds={"precision/stale-gradient": 0})
def game_without_a_toggle(run):
    return game(run, False)


def tasks(run, steps=60):
    """A body that two heads share: each loss is learned by its own head, and the body gets both."""
    body, heads, losses = nn.Linear(8, 16), [nn.Linear(16, 1), nn.Linear(16, 1)], []
    mine = torch.optim.Adam(body.parameters(), lr=1e-3)
    theirs = [torch.optim.Adam(head.parameters(), lr=1e-3) for head in heads]
    run.watch(nn.ModuleList([body, *heads]), [mine, *theirs])
    for _ in range(steps):
        x = torch.randn(32, 8)
        for head, optimizer, target in zip(heads, theirs, (x[:, :1], x.sum(1, keepdim=True))):
            loss = (head(body(x)) - target).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        mine.step()
        mine.zero_grad()
    return losses, body.state_dict()


@case(level="warning")
def body_that_two_tasks_share(run):
    return tasks(run)


# ---- updates, norms ---------------------------------------------------------------------------------


@case(steps=STEPS, level="warning")
def updates_without_what_was_meant(run):
    """Plain calls: before and after, and no intended update."""
    model = Language()
    run.watch(torch.nn.Linear(2, 2))  # another one
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, batch in enumerate(batches(STEPS)):
        with run.step(step):
            loss = model(batch)
            loss.backward()
            before = model.head.weight.detach().clone()
            optimizer.step()
            optimizer.zero_grad()
            run.observe_update("head.weight", before, model.head.weight)
            run.scalar("loss", float(loss.detach()))
    return model.state_dict()


@case(steps=STEPS, level="warning")
def an_optimizer_for_each_parameter(run):
    """They step within the backward pass, as gradients come: one norm of all is recorded."""
    model = Language()
    optimizers = {p: torch.optim.AdamW([p], lr=1e-3) for p in model.parameters()}
    norms = []

    def steps(p):
        norms[-1] += p.grad.norm() ** 2
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(steps)
    run.watch(model, list(optimizers.values()))
    losses = []
    for batch in batches(STEPS):
        norms.append(torch.zeros(()))
        loss = model(batch)
        loss.backward()
        losses.append(loss.detach())
    expect(loss=losses, **{"grad_norm~": [norm.sqrt() for norm in norms], "grad_norm.1": None})
    return losses, model.state_dict()


# ---- searches, ends, modes ----------------------------------------------------------------------------


class Rated(Module):
    lr = 1e-4

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


@case(steps=20, level="warning", opens=False)
def search_for_a_rate(_):
    """Lightning's: its steps are none of the run's."""
    module, callback = Rated(), PlumblineCallback(record="record", run="search", every=1)
    trainer = lightning.Trainer(accelerator="cpu", devices=1, callbacks=[callback], enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False, logger=False, max_steps=20, default_root_dir=os.getcwd())  # fmt: skip
    data = torch.utils.data.DataLoader(words(20 * 8), batch_size=8)
    Tuner(trainer).lr_find(module, data, num_training=15, update_attr=False)
    module.losses.clear()
    trainer.fit(module, data)
    if type(callback.run).__name__ == "Run":
        if not callback.run.finish():
            raise Wrong("run.finish() is false")
        expect(loss=module.losses)
    return module.losses, module.state_dict()


def hooked(model, optimizer):
    """What a watch may have changed."""
    return [torch.Tensor.backward, torch.autograd.backward, torch.autograd.Variable._execution_engine.run_backward, nn.utils.clip_grad_norm_,
            torch.utils.data.dataloader._BaseDataLoaderIter.__next__, getattr(optimizer.step, "__func__", optimizer.step),
            list(gc.callbacks), [len(m._forward_pre_hooks) + len(m._forward_hooks) + len(m._backward_hooks) for m in model.modules()],
            [len(p._backward_hooks or ()) + len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()],
            len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)]  # fmt: skip


@case(steps=10, level="warning")
def a_run_that_has_ended_lets_go(run):
    """The training goes on after finish(): nothing of the watch is left."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    before = hooked(model, optimizer)
    run.watch(model, optimizer)
    for step, batch in enumerate(batches(20)):
        model(batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step == 9:
            run.finish()
            after = hooked(model, optimizer)
            if before != after:
                raise Wrong(f"left hooked: {[pair for pair in zip(before, after) if pair[0] != pair[1]]}")
    return model.state_dict()


def validated(run, back):
    """accelerate: validated after 10 steps."""
    accelerator, model = Accelerator(cpu=True), Language()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    run.watch(model, optimizer)
    for step, batch in enumerate(batches(STEPS)):
        if step == 10:
            model.eval()
            with torch.no_grad():
                model(batch)
            model.train(back)
        accelerator.backward(model(batch))
        optimizer.step()
        optimizer.zero_grad()
    return accelerator.unwrap_model(model).state_dict()


@case(level="warning", finds={"health/eval-mode": 10})
def eval_mode_is_left_on(run):
    return validated(run, False)


@case(level="warning")
def eval_mode_is_left_again(run):
    return validated(run, True)
