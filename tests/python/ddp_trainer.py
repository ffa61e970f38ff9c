"""A small DDP trainer over gloo, observed or not: prints a digest of its weights, a line a rank.

    ddp_trainer.py RANKS HOOK OBSERVED STEPS      (OBSERVED: plain | observed)
"""

import hashlib
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import plumbline

WORLD = None


def divide_after(state, bucket):
    """Sums, then divides the collective's own result in place."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0].div_(dist.get_world_size()))


def through_the_group(state, bucket):
    """fp16, scaled by a half, by the group's own method, waited for at once."""
    group = dist.distributed_c10d._get_default_group()
    wire = bucket.buffer().mul(0.5).to(torch.float16)
    group.allreduce([wire]).wait()
    bucket.buffer().copy_(wire).mul_(2.0 / group.size())
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def gathering(state, bucket):
    """No all_reduce at all: gathers, and adds in order."""
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


class State:
    def __init__(self):
        self.process_group = dist.distributed_c10d._get_default_group()
        self.calls = 0


class CountedState:
    calls = 0
    process_group = None


HOOKS = {
    "none": (lambda: None, None),
    "allreduce": (lambda: None, default_hooks.allreduce_hook),
    "fp16": (lambda: None, default_hooks.fp16_compress_hook),
    "bf16": (lambda: None, default_hooks.bf16_compress_hook),
    "divide-after": (lambda: None, divide_after),
    "group": (lambda: None, through_the_group),
    "gather": (lambda: None, gathering),
    "state": (State, of_the_trainer),
    "powersgd": (
        lambda: powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2),
        powerSGD_hook.powerSGD_hook,
    ),
}


def model(rank):
    torch.manual_seed(3)
    layers = [torch.nn.Linear(64, 96), torch.nn.Tanh(), torch.nn.Linear(96, 64), torch.nn.Linear(64, 8)]
    return torch.nn.Sequential(*layers)


def train(rank, ranks, meeting, hook, observed, steps):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
    if "PLUMBLINE_TEST_LOG" in os.environ:
        os.environ["PLUMBLINE_TEST_LOG"] += f".{rank}"
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 20000  # several buckets of a small model
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    run = plumbline.init(run="ddp", record="runs", every=1, strict=bool(observed == "strict"))
    net = DistributedDataParallel(model(rank), bucket_cap_mb=0.02)
    state, hook = HOOKS[hook][0](), HOOKS[hook][1]
    if observed != "plain":
        net.register_comm_hook(state, run.observed(hook))
    elif hook is not None:
        net.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for i in range(steps):
        with run.step(i + 1):
            x = torch.randn(32, 64, generator=generator)
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    run.finish()
    weights = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
    print(f"rank {rank} weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, hook, observed, steps = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    with tempfile.TemporaryDirectory() as place:
        arguments = (ranks, os.path.join(place, "meeting"), hook, observed, steps)
        # Forked: torch is imported once. Plumbline is not loaded yet.
        mp.start_processes(train, arguments, ranks, start_method="fork")
