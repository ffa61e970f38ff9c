"""Tensor and pipeline parallelism of torch on two ranks: DTensor's plan, layers of one's own, torch.distributed.pipelining."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import plumbline

from harness import Wrong, case, expect
from ranks import RANKS, of_ranks
from small import VOCABULARY, words

STEPS, MICRO, WIDTH = 12, 4, 32


def opened():
    dist.init_process_group("gloo")
    return plumbline.init(run="ranks", record="record", every=1)


def finish(run):
    if not run.finish():
        raise Wrong("run.finish() is false")
    dist.destroy_process_group()


def loss_of(logits, targets):
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Block(nn.Module):
    def __init__(self, up, down):
        super().__init__()
        self.up, self.down = up, down

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self, block=lambda: Block(nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)), blocks=2):
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.blocks = nn.ModuleList(block() for _ in range(blocks))

    def forward(self, ids):
        hidden = self.embed(ids)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


# ---- tensor parallel, by DTensor ----------------------------------------------------------------


def by_dtensor(clip=None, whole=True, dropped=False):
    """`whole`: each parameter is a DTensor; else those of the blocks alone. `dropped`: each rank drops other activations in front of the head."""
    run, model = opened(), Net()
    plan = {f"blocks.{n}.{part}": style for n in range(2) for part, style in (("up", ColwiseParallel()), ("down", RowwiseParallel()))}
    if whole:
        plan |= {"embed": RowwiseParallel(input_layouts=Replicate()), "head": ColwiseParallel(output_layouts=Replicate())}
    parallelize_module(model, init_device_mesh("cpu", (RANKS,)), plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    if dropped:
        torch.manual_seed(dist.get_rank())
        model.head = nn.Sequential(nn.Dropout(0.1), model.head)
    run.watch(model, optimizer)
    losses = []
    for batch in words(STEPS * 8).split(8):
        loss = loss_of(model(batch[:, :-1]), batch[:, 1:])
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip, foreach=False)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    finish(run)
    return losses, [getattr(p, "to_local", lambda p=p: p)().detach().clone() for p in model.parameters()]


@case(steps=STEPS, level="warning", opens=False)
def tensor_parallel(_):
    return of_ranks(by_dtensor)


@case(steps=STEPS, level="warning", opens=False)
def tensor_parallel_clipped(_):
    return of_ranks(lambda: by_dtensor(clip=0.1))


@case(steps=STEPS, level="warning", opens=False)
def tensor_parallel_of_the_blocks(_):
    return of_ranks(lambda: by_dtensor(whole=False))


@case(level="warning", finds={"precision/replica-divergence": 0}, others=True, opens=False)
def tensor_parallel_whose_copies_part(_):
    """Dropout draws other numbers on each rank, so the copies of the embedding and of the head get other gradients."""
    return of_ranks(lambda: by_dtensor(whole=False, dropped=True))


# ---- tensor parallel, by layers of one's own ----------------------------------------------------


class Copied(torch.autograd.Function):
    """The input of a layer that is split by columns: its gradient is the sum over the ranks."""

    @staticmethod
    def forward(_, x):
        return x.view_as(x)

    @staticmethod
    def backward(_, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class Summed(torch.autograd.Function):
    """The output of a layer that is split by rows."""

    @staticmethod
    def forward(_, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(_, gradient):
        return gradient


class Columns(nn.Linear):
    def forward(self, x):
        return super().forward(Copied.apply(x))


class Rows(nn.Linear):
    def forward(self, x):
        return Summed.apply(nn.functional.linear(x, self.weight)) + self.bias


def own_block():
    up, down = Columns(WIDTH, 2 * WIDTH // RANKS), Rows(2 * WIDTH // RANKS, WIDTH)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for part in (up.weight, up.bias, down.weight):
        nn.init.uniform_(part, -0.1, 0.1, generator=generator)
    return Block(up, down)


def split(name):
    return name.endswith(("up.weight", "up.bias", "down.weight"))


def clip_over_ranks(model, most):
    """The norm of all: squares of the parts are added over the ranks, those of copies are counted once."""
    parts = torch.stack([p.grad.norm() ** 2 for name, p in model.named_parameters() if split(name)]).sum()
    dist.all_reduce(parts)
    total = (parts + sum(p.grad.norm() ** 2 for name, p in model.named_parameters() if not split(name))).sqrt()
    for p in model.parameters():
        p.grad *= min(1.0, most / float(total))


def by_hand():
    run = opened()
    model = Net(own_block)
    optimizer = adamw(model)
    run.watch(model, optimizer)
    losses = []
    for batch in words(STEPS * 8).split(8):
        loss = loss_of(model(batch[:, :-1]), batch[:, 1:])
        loss.backward()
        clip_over_ranks(model, 0.05)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    finish(run)
    return losses, model.state_dict()


@case(steps=STEPS, level="warning", opens=False)
def layers_of_ones_own(_):
    return of_ranks(by_hand)


# ---- pipelining -----------------------------------------------------------------------------------


class First(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.embed, self.block = net.embed, net.blocks[0]

    def forward(self, ids):
        return self.block(self.embed(ids))


class Last(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.block, self.head = net.blocks[1], net.head

    def forward(self, hidden):
        return self.head(self.block(hidden))


def pipelined(kind, poison=None):
    """`poison`: the step whose loss is NaN."""
    run, net, rank, step = opened(), Net(), dist.get_rank(), 0
    part = (First, Last)[rank](net)

    def loss(logits, targets):
        return loss_of(logits, targets) * (float("nan") if step == poison else 1)

    schedule = kind(PipelineStage(part, rank, RANKS, torch.device("cpu")), MICRO, loss_fn=loss)
    optimizer = adamw(part)
    run.watch(part, optimizer)
    means = []
    for step, batch in enumerate(words(STEPS * 8).split(8)):
        optimizer.zero_grad()
        losses = []
        if rank == 0:
            schedule.step(batch[:, :-1])
        else:
            schedule.step(target=batch[:, 1:], losses=losses)
            means.append(torch.stack(losses).mean().detach())
        optimizer.step()
    if rank and poison is None:
        expect(loss=means)
    finish(run)
    return means, part.state_dict()


@case(steps=STEPS, level="warning", opens=False)
def pipeline(_):
    return of_ranks(lambda: pipelined(ScheduleGPipe))


@case(steps=STEPS, level="warning", opens=False)
def pipeline_of_one_forward_one_backward(_):
    return of_ranks(lambda: pipelined(Schedule1F1B))


@case(level="warning", finds={"health/loss-non-finite": 5}, others=True, opens=False)
def pipeline_whose_loss_is_nan(_):
    return of_ranks(lambda: pipelined(ScheduleGPipe, poison=5))
