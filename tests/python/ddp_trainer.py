"""A small DDP trainer over gloo. With each hook it trains twice, without Plumbline and with it, and
prints a digest of the weights of both, a line a hook and rank.

    ddp_trainer.py RANKS STEPS HOOK...     (BROKEN=1: what Plumbline does inside fails)
"""

import contextlib
import hashlib
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import plumbline
import plumbline._hooks


def divide_after(state, bucket):
    """Sums, then divides the result of the collective in place."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0].div_(dist.get_world_size()))


def through_the_group(state, bucket):
    """fp16, scaled by a half, by a method of the group, with an immediate wait."""
    group = dist.distributed_c10d._get_default_group()
    wire = bucket.buffer().mul(0.5).to(torch.float16)
    group.allreduce([wire]).wait()
    bucket.buffer().copy_(wire).mul_(2.0 / group.size())
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def gathering(state, bucket):
    """Uses no all_reduce: gathers, and adds in order."""
    parts = [torch.empty_like(bucket.buffer()) for _ in range(dist.get_world_size())]
    work = dist.all_gather(parts, bucket.buffer(), async_op=True)

    def add(_):
        total = parts[0].clone()
        for part in parts[1:]:
            total += part
        return total.div_(len(parts))

    return work.get_future().then(add)


def of_the_trainer(state, bucket):
    """A hook that keeps its group in its state."""
    state.calls += 1
    return default_hooks.allreduce_hook(state.process_group, bucket)


def halves(state, bucket):
    """Two collectives a call."""
    buffer = bucket.buffer()
    parts = buffer.split((buffer.numel() + 1) // 2)
    futures = [dist.all_reduce(part, async_op=True).get_future() for part in parts]
    return torch.futures.collect_all(futures).then(lambda _: buffer.div_(dist.get_world_size()))


class State:
    def __init__(self):
        self.process_group = dist.distributed_c10d._get_default_group()
        self.calls = 0


HOOKS = {
    "none": (lambda: None, None),
    "allreduce": (lambda: None, default_hooks.allreduce_hook),
    "fp16": (lambda: None, default_hooks.fp16_compress_hook),
    "bf16": (lambda: None, default_hooks.bf16_compress_hook),
    "divide-after": (lambda: None, divide_after),
    "group": (lambda: None, through_the_group),
    "gather": (lambda: None, gathering),
    "state": (State, of_the_trainer),
    "halves": (lambda: None, halves),
}


def digest(net):
    weights = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
    return hashlib.sha256(weights).hexdigest()[:16]


def train(rank, ranks, hook, run, first, steps):
    """Trains a fresh model; `run` None: unobserved. Returns its digest."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 96), torch.nn.Tanh(), torch.nn.Linear(96, 64), torch.nn.Linear(64, 8)
    )
    net = DistributedDataParallel(net, bucket_cap_mb=0.02)
    state, plain = HOOKS[hook][0](), HOOKS[hook][1]
    if run is not None:
        net.register_comm_hook(state, run.observed(plain, name=hook))
    elif plain is not None:
        net.register_comm_hook(state, plain)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for i in range(first, first + steps):
        with run.step(i) if run is not None else contextlib.nullcontext():
            x = torch.randn(32, 64, generator=generator)
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    return digest(net)


def work(rank, ranks, meeting, hooks, steps):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 20000  # several buckets of a small model
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    method = vars(dist.ProcessGroup)["allreduce"]
    run = plumbline.init(run="ddp", record="runs", every=1)
    if "BROKEN" in os.environ:
        plumbline._hooks.elements = lambda *_: 1 // 0
    for number, hook in enumerate(hooks):
        plain = train(rank, ranks, hook, None, 0, steps)
        observed = train(rank, ranks, hook, run, 1 + number * steps, steps)
        os.write(1, f"{hook} {rank} {plain} {observed}\n".encode())  # whole lines
    assert vars(dist.ProcessGroup)["allreduce"] is method  # torch is unchanged
    assert run.finish(60)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, steps, hooks = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    with tempfile.TemporaryDirectory() as place:
        arguments = (ranks, os.path.join(place, "meeting"), hooks, steps)
        # Forked: torch is imported once. Plumbline's library is not loaded yet.
        mp.start_processes(work, arguments, ranks, start_method="fork")
