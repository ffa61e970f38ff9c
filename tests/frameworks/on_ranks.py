"""Two ranks under DistributedDataParallel that a framework wraps, or that the trainer hands over without its wrapper."""

import contextlib

import lightning
import plumbline
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from plumbline.transformers import PlumblineCallback
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from transformers import Trainer

from harness import Wrong, case, expect
from on_lightning import Module
from on_transformers import arguments, llama, rows
from ranks import RANKS, compared, of_ranks
from small import Language, finish_light, words

STEPS, LONG = 12, 200


def opened():
    return plumbline.init(run="ranks", record="record", every=1)


def finish(run):
    if not run.finish():
        raise Wrong("run.finish() is false")


def own_loop(optimizer_of, same=False, watched=lambda ddp: ddp.module, early=False, steps=STEPS):
    """`same`: both ranks train on the same rows. `early`: watched before the wrapper is made."""
    dist.init_process_group("gloo")
    run, model = opened(), Language()
    optimizer = optimizer_of(model)
    if early:
        run.watch(model, optimizer)
    ddp = DistributedDataParallel(model)
    if not early:
        run.watch(watched(ddp), optimizer)
    rank = dist.get_rank()
    parts = words(steps * RANKS * 8).split(8)
    for step in range(steps):
        batch = parts[RANKS * step + (0 if same else rank)]
        ddp(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    finish(run)
    dist.destroy_process_group()
    return model.state_dict()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


SUMS = "the ranks' copies and sums of DistributedDataParallel"


@case(steps=STEPS, level="warning", states=SUMS, opens=False)
def bare_module(_):
    return of_ranks(lambda: own_loop(adamw))


def completeness(ignored=None, unsynchronised=(), micro_batches=1, view=False):
    """`ignored`: a parameter that the wrapper leaves to the trainer. `unsynchronised`: micro-batches within no_sync()."""
    dist.init_process_group("gloo")
    run, model = opened(), Language()
    if ignored:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [ignored])
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=view)
    optimizer = adamw(model)
    run.watch_completeness(model if ignored else ddp, optimizer, summed=True)
    parts = iter(words(STEPS * micro_batches * RANKS * 8).split(8)[dist.get_rank() :: RANKS])
    for step in range(STEPS):
        with run.step(step):
            for k in range(micro_batches):
                with ddp.no_sync() if k in unsynchronised else contextlib.nullcontext():
                    loss = ddp(next(parts)) / micro_batches
                    loss.backward()
            run.scalar("loss", loss.item())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    finish(run)
    dist.destroy_process_group()
    return model.state_dict()


INCOMPLETE = "precision/gradient-completeness"


@case(steps=STEPS, level="warning", opens=False, states="")
def complete_gradients(_):
    return of_ranks(completeness)


@case(steps=STEPS, level="warning", opens=False, states="")
def complete_gradients_of_micro_batches(_):
    return of_ranks(lambda: completeness(micro_batches=3, unsynchronised=(0, 1), view=True))


@case(steps=STEPS, finds={INCOMPLETE: None}, level="warning", opens=False, states="")
def a_parameter_that_the_wrapper_ignores(_):
    name = [name for name, p in Language().named_parameters() if p.numel() > 64][1]
    return of_ranks(lambda: completeness(ignored=name))


@case(steps=STEPS, finds={INCOMPLETE: 0}, level="warning", opens=False, states="")
def no_sync_on_the_last_micro_batch(_):
    return of_ranks(lambda: completeness(micro_batches=2, unsynchronised=(0, 1)))


def without_a_wrapper(own=False, averaged=0):
    """Each rank trains by itself: no gradients are summed. `own`: other weights on each. `averaged`: the number of steps after which the weights are averaged."""
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank() if own else 0)
    run, model = opened(), Language()
    optimizer = adamw(model)
    run.watch(model, optimizer)
    for step, batch in enumerate(words(STEPS * RANKS * 8).split(8)[dist.get_rank() :: RANKS]):
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        if averaged and step % averaged == averaged - 1:
            for p in model.parameters():
                dist.all_reduce(p.detach())
                p.data /= RANKS
    finish(run)
    dist.destroy_process_group()
    return model.state_dict()


@case(steps=STEPS, level="note", states="one of 2 processes", finds={"meta/probe-coverage": None, "precision/replica-divergence": 3}, opens=False)
def no_wrapper(_):
    return of_ranks(without_a_wrapper)


@case(steps=STEPS, level="note", states="one of 2 processes", finds={"meta/probe-coverage": None}, opens=False)
def no_wrapper_and_models_of_their_own(_):
    return of_ranks(lambda: without_a_wrapper(own=True))


@case(steps=STEPS, level="note", states="one of 2 processes", finds={"meta/probe-coverage": None}, opens=False)
def no_wrapper_and_weights_that_are_averaged_now_and_then(_):
    return of_ranks(lambda: without_a_wrapper(averaged=10))


@case(steps=STEPS, level="warning", states="one of 2 processes(.|\n)*" + SUMS, opens=False)
def watched_before_the_wrapper(_):
    return of_ranks(lambda: own_loop(adamw, early=True))


@case(level="warning", states=SUMS, finds={"health/same-data": None}, opens=False)
def bare_module_same_data(_):
    return of_ranks(lambda: own_loop(adamw, same=True, steps=100))


@case(steps=STEPS, level="warning", states="AdamW, " + SUMS, opens=False)
def zero_redundancy(_):
    return of_ranks(lambda: own_loop(lambda model: ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)))


def sharded(run_steps=STEPS, evaluated=False, early_optimizer=False, clip=None, same=False):
    """FSDP2. `evaluated`: a forward pass without backward before the watch. `early_optimizer`: made before the model is sharded.

    `same`: both ranks train on the same rows."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,))
    run, model = opened(), Language()
    optimizer = adamw(model)
    for part in (model.block, model):
        fully_shard(part, mesh=mesh)
    optimizer = optimizer if early_optimizer else adamw(model)
    parts = words(run_steps * RANKS * 8).split(8)
    if evaluated:
        model.eval()
        with torch.no_grad():
            model(parts[0])
        model.train()
    run.watch(model, optimizer)
    norms = []
    for step in range(run_steps):
        model(parts[RANKS * step + (0 if same else dist.get_rank())]).backward()
        if clip:
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip).full_tensor())
        optimizer.step()
        model.zero_grad() if early_optimizer else optimizer.zero_grad()
    if norms and dist.get_rank() == 0:
        expect(grad_norm=norms)
    finish(run)
    state = {name: p.full_tensor() for name, p in model.state_dict().items()}
    dist.destroy_process_group()
    return state


SHARDS = "AdamW, the sums of 2 processes"


@case(steps=STEPS, level="warning", states=SHARDS, opens=False)
def fsdp2_watched_after_an_evaluation(_):
    return of_ranks(lambda: sharded(evaluated=True))


@case(steps=STEPS, level="warning", states=SHARDS, opens=False)
def fsdp2_norm_of_all_shards(_):
    return of_ranks(lambda: sharded(clip=0.1))


@case(level="warning", states=SHARDS, finds={"health/same-data": None}, opens=False)
def fsdp2_same_data(_):
    return of_ranks(lambda: sharded(run_steps=100, same=True))


@case(level="warning", states="no optimizer holds any of them", finds={"health/no-gradient": None}, opens=False)
def fsdp2_optimizer_made_before_the_shards(_):
    return of_ranks(lambda: sharded(early_optimizer=True))


def summed_by_hand(of_gradients):
    """No wrapper: the trainer sums itself, each gradient or all of them in one tensor."""
    dist.init_process_group("gloo")
    run, model = opened(), Language()
    optimizer = adamw(model)
    run.watch(model, optimizer)
    for batch in words(STEPS * RANKS * 8).split(8)[dist.get_rank() :: RANKS]:
        model(batch).backward()
        of_gradients([p.grad for p in model.parameters()])
        optimizer.step()
        optimizer.zero_grad()
    finish(run)
    dist.destroy_process_group()
    return model.state_dict()


def each(gradients):
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= RANKS


def together(gradients):
    flat = torch.cat([g.flatten() for g in gradients])
    work = dist.all_reduce(flat, async_op=True)
    work.wait()
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients])):
        gradient.copy_(part.view_as(gradient) / RANKS)


@case(steps=STEPS, level="note", states="one of 2 processes", opens=False)
def summed_by_hand_each(_):
    return of_ranks(lambda: summed_by_hand(each))


@case(steps=STEPS, level="note", states="one of 2 processes", opens=False)
def summed_by_hand_together(_):
    return of_ranks(lambda: summed_by_hand(together))


def light(sharded=False, micro=1, clip=0.5, raises_at=None):
    """At the default budget: nothing is due in most steps. The ranks have batches of different sizes. `raises_at`: one rank's batch fails, and its step begins again."""
    dist.init_process_group("gloo")
    rank, run, model = dist.get_rank(), plumbline.init(run="ranks", record="record", budget=0.01), Language()
    if sharded:
        for part in (model.block, model):
            fully_shard(part, mesh=init_device_mesh("cpu", (RANKS,)))
    wrapped = model if sharded else DistributedDataParallel(model)
    optimizer = adamw(model)
    watched = run.watch(wrapped, optimizer)
    parts = iter(words(LONG * micro * RANKS * 12).split(12)[rank::RANKS])
    losses, tokens, norms, count = [], [], [], 0
    for step in range(LONG):
        total = rows = 0
        for k in range(micro):
            batch = next(parts)[: 12 - 5 * rank]
            if step == raises_at and rank == 1:
                with contextlib.suppress(IndexError):
                    wrapped.module.embed(batch + 10**6) if not sharded else None
            with contextlib.nullcontext() if sharded or k + 1 == micro else wrapped.no_sync():
                loss = wrapped(batch) / micro
                loss.backward()
            total, rows = total + loss.item(), rows + batch[:, :].numel()
        count += getattr(watched, "light", None) is not None
        if clip:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            norms.append(float(norm.full_tensor() if sharded else norm))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total), tokens.append(rows)
    finish_light(run, count, LONG)
    state = {name: p.full_tensor() if sharded else p for name, p in model.state_dict().items()}
    dist.destroy_process_group()
    return {"state": state, "series": {"loss": losses, "tokens": tokens, **({"grad_norm": norms} if clip else {})}}


@case(steps=LONG, level="warning", states=SUMS, opens=False, budgeted=True)
def light_steps(_):
    return compared(of_ranks(light))


@case(steps=LONG, level="warning", states=SUMS, opens=False, budgeted=True)
def light_micro_batches_of_which_the_last_one_sums(_):
    return compared(of_ranks(lambda: light(micro=3, raises_at=150)))


@case(steps=LONG, level="warning", states=SHARDS, opens=False, budgeted=True)
def fsdp2_light_steps(_):
    return compared(of_ranks(lambda: light(sharded=True)))


@case(steps=LONG, level="warning", states=SHARDS, opens=False, budgeted=True)
def fsdp2_light_micro_batches(_):
    return compared(of_ranks(lambda: light(sharded=True, micro=2, clip=None)))


class Watch(lightning.Callback):
    def __init__(self, run):
        self.run = run

    def on_train_start(self, trainer, pl_module):
        self.run.watch(pl_module, trainer.optimizers)


def of_lightning():
    run, module = opened(), Module()
    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", devices=RANKS, strategy=DDPStrategy(process_group_backend="gloo"), callbacks=[Watch(run)],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, logger=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(words(STEPS * RANKS * 8), batch_size=8))
    finish(run)
    return module.state_dict()


@case(steps=STEPS, level="warning", states=SUMS, opens=False)
def lightning_module(_):
    return of_ranks(of_lightning)


def of_transformers():
    callback = PlumblineCallback(run="ranks", record="record", every=1)
    trainer = Trainer(model=llama(), args=arguments(max_steps=STEPS), train_dataset=rows(STEPS * RANKS * 4), callbacks=[callback])
    trainer.train()
    finish(callback.run)
    return trainer.model.state_dict()


@case(steps=STEPS, level="warning", states=SUMS, opens=False)
def trainer_callback(_):
    return of_ranks(of_transformers)
