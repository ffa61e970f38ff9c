"""One rank of a trainer under DistributedDataParallel, for light_ranks_test.py.

    light_ranks_trainer.py SETTINGS    (JSON: the file at which the ranks meet, where to record, the kind of the trainer)

Prints JSON: digests of what was computed, the steps that were light, and the values that the trainer saw."""

import contextlib
import hashlib
import json
import os
import random
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import plumbline

OWN = ("none", "none", "none", "fp16", "own", "observed")


def kind_of(seed):
    """Returns the features of one healthy trainer."""
    rng = random.Random(seed)
    return {"passes": rng.choice((1, 1, 2, 3)), "no_sync": rng.random() < 0.5, "clip": rng.random() < 0.5, "hook": rng.choice(OWN),
            "module_hook": rng.random() < 0.3, "uneven": rng.random() < 0.4, "evaluates": rng.choice((0, 37, 64)), "inside": rng.random() < 0.5,
            "groups": rng.choice((1, 2)), "ids": rng.random() < 0.6, "view": rng.random() < 0.3, "buckets": rng.random() < 0.4,
            "unused": rng.random() < 0.2, "pause": rng.choice((0.0, 0.0, 0.002)), "scalar": rng.random() < 0.15, "seed": seed}  # fmt: skip


class Model(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.ids = kind["ids"]
        self.table = torch.nn.Embedding(50, 32) if self.ids else torch.nn.Linear(32, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.hidden, self.out = torch.nn.Linear(32, 64), torch.nn.Linear(64, 50)
        self.spare = torch.nn.Linear(4, 4) if kind.get("unused") else None

    def forward(self, x):
        return self.out(torch.relu(self.hidden(self.norm(self.table(x)))))


def batch(kind, generator, rank, step):
    rows = 4 + (rank * 3 + step) % 5 if kind["uneven"] else 8
    if kind["ids"]:
        x = torch.randint(0, 50, (rows, 8 + (step % 3 if kind["uneven"] else 0)), generator=generator)
        return x, x.flatten()
    x = torch.randn(rows, 32, generator=generator)
    return x, x.argmax(1)


def own_hook(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0].div_(dist.get_world_size()))


def optimizer_of(kind, model):
    parts = [p for name, p in model.named_parameters() if name.startswith("table")], [p for name, p in model.named_parameters() if not name.startswith("table")]
    groups = [{"params": parts[0], "lr": 1e-3}, {"params": parts[1], "lr": 2e-3}] if kind["groups"] == 2 else list(model.parameters())
    return torch.optim.AdamW(groups, lr=1e-3)


def train(settings, rank):
    kind, steps, fault, at = settings["kind"], settings["steps"], settings.get("fault"), settings.get("at", -1)
    torch.manual_seed(kind["seed"])
    model = Model(kind)
    run = None
    if settings["record"]:
        run = plumbline.init(run="ranks", record=settings["record"], strict=settings.get("strict", True), budget=settings["budget"])
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=kind["view"], find_unused_parameters=kind["unused"],
                                  bucket_cap_mb=0.004 if kind["buckets"] else 25)  # fmt: skip
    if kind["hook"] == "observed" and run is None:
        ddp.register_comm_hook(None, default_hooks.allreduce_hook)
    elif kind["hook"] != "none":
        ddp.register_comm_hook(None, {"fp16": default_hooks.fp16_compress_hook, "own": own_hook}.get(kind["hook"]) or run.observed(default_hooks.allreduce_hook))
    calls = []
    if kind["module_hook"]:
        model.hidden.register_forward_hook(lambda *_: calls.append(1))
        ddp.register_forward_pre_hook(lambda *_: calls.append(2))
    optimizer = optimizer_of(kind, model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 1 / (1 + s / 100))
    watch = None if run is None else run.watch(ddp, optimizer)
    generator = torch.Generator().manual_seed(1000 + (0 if fault == "same" else rank))
    seen = {"loss": [], "grad_norm": [], "tokens": [], "lr": []}
    light, looked = [], []
    loss_of = torch.nn.functional.cross_entropy
    joins = ddp.join() if settings.get("join") else contextlib.nullcontext()
    steps -= 7 * rank if settings.get("join") else 0
    with joins:
        for step in range(steps):
            total, tokens = 0.0, 0
            for part in range(kind["passes"]):
                x, y = batch(kind, generator, rank, step)
                alone = kind["passes"] > 1 and kind["no_sync"] and part + 1 < kind["passes"]
                apart = fault == "bypass" and step >= at
                with ddp.no_sync() if alone or apart else contextlib.nullcontext():
                    loss = loss_of(ddp(x).flatten(0, -2), y) / kind["passes"]
                    if fault == "nan" and step == at and rank == 1:
                        loss = loss * float("nan")
                    loss.backward()
                total, tokens = total + loss.item(), tokens + (x.numel() if kind["ids"] else 0)
            if fault == "raises" and step == at and rank == 1:
                raise ValueError("the trainer's own error")
            if kind["pause"]:
                began = time.thread_time()
                while time.thread_time() - began < kind["pause"] * (1 + rank):
                    pass
            if kind["clip"]:
                seen["grad_norm"].append(float(torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.5)))
            seen["loss"].append(total), seen["tokens"].append(tokens), seen["lr"].append(optimizer.param_groups[0]["lr"])
            if watch is not None and watch.light:
                light.append(step)
            if fault == "flip" and step == at and rank == 1:
                with torch.no_grad():
                    model.out.weight[3, 3] += 1e-3
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            if kind["scalar"] and run is not None and step in (70, 151):
                run.scalar("accuracy", 0.5)
            if kind["evaluates"] and step % kind["evaluates"] == kind["evaluates"] - 1:
                model.eval() if kind["inside"] else ddp.eval()
                with torch.no_grad():
                    (model if kind["inside"] else ddp)(x)
                ddp.train()
    if run is not None and not run.finish(60):
        sys.exit("finish() is false")
    digest = hashlib.sha256(b"".join(p.detach().contiguous().numpy().tobytes() for p in model.parameters())).hexdigest()
    return {"weights": digest, "light": light, "looked": looked, "calls": len(calls), **seen}


def main():
    settings, rank = json.loads(sys.argv[1]), int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{settings['meeting']}", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    print(json.dumps(train(settings, rank)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
