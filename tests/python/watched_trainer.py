"""A small language model with the two lines in it. Prints a digest of its losses and weights, a line a rank.

    watched_trainer.py RECORD FAULT [SEED [RANKS]]     RECORD: a folder, or "none": without Plumbline

FAULT: none, nan (the loss of step 50), nan-weight (a weight before step 50, on the last rank), bf16 (weights in it, at a small learning rate), accumulation
(four micro-batches a step), wd (AdamW's decay, a schedule), flip (a bit of a weight, rank 1, step 40),
hook-before and hook-after (DDP's fp16 hook, registered before watch or after it), no-zero-grad,
not-held (a weight that the optimizer does not know), lr-0, no-sync (DDP's, left open), one-shard (all
ranks read the same batches), bf16-accumulation (32 micro-batches a step added up in bf16).
"""

import contextlib
import hashlib
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

import plumbline

WORDS, WIDTH, LENGTH, BATCH = 64, 64, 32, 8
STEPS = int(os.environ.get("STEPS", "120"))
PAUSE = float(os.environ.get("PAUSE", "0"))  # seconds a step, as of a larger model's


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).chunk(3, -1)
        later = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)
        a = (q @ k.transpose(1, 2) / WIDTH**0.5).masked_fill(later, -1e9).softmax(-1)
        x = x + self.drop(self.proj(a @ v))
        return x + self.drop(self.down(torch.relu(self.up(self.ln2(x)))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.place = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, tokens):
        x = self.embed(tokens) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(text, generator):
    at = torch.randint(0, len(text) - LENGTH - 1, (BATCH,), generator=generator)
    return tuple(torch.stack([text[a + shift : a + shift + LENGTH] for a in at]) for shift in (0, 1))


def train(rank, record, fault, seed, ranks):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    if record != "none":
        run = plumbline.init(run="watched", record=record, budget=1)  # in 300 steps of some ms, 1 % of the time is less than one look
    model = Model()
    if fault in ("bf16", "bf16-accumulation"):
        model = model.bfloat16()
    held = model
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    known = [p for name, p in held.named_parameters() if fault != "not-held" or name != "blocks.1.down.weight"]
    rate = {"bf16": 1e-5, "lr-0": 0.0}.get(fault, 1e-3)
    optimizer = torch.optim.AdamW(known, lr=rate, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 1 / (1 + i)) if fault == "wd" else None
    if fault == "hook-before":
        model.register_comm_hook(None, fp16_compress_hook)
    if record != "none":
        run.watch(model, optimizer)
    if fault == "hook-after":
        model.register_comm_hook(None, fp16_compress_hook)
    text = torch.randint(0, WORDS, (4096,), generator=torch.Generator().manual_seed(7)).cumsum(0) % WORDS
    generator = torch.Generator().manual_seed(100 * seed + (0 if fault == "one-shard" else rank))
    seen = hashlib.sha256()
    micro = {"accumulation": 4, "bf16-accumulation": 32}.get(fault, 1)
    for step in range(STEPS):
        if fault == "nan-weight" and step == 50 and rank == ranks - 1:
            with torch.no_grad():
                held.blocks[1].down.weight[3, 5] = float("nan")
        for m in range(micro):
            x, y = batch(text, generator)
            quiet = ranks > 1 and (m + 1 < micro or fault == "no-sync")
            with model.no_sync() if quiet else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(model(x).float().flatten(0, 1), y.flatten()) / micro
                if fault == "nan" and step == 50:
                    loss = loss * float("nan")
                loss.backward()
        time.sleep(PAUSE)
        optimizer.step()
        if fault == "no-zero-grad":
            held.head.bias.grad = None  # another gradient is cleared
        else:
            optimizer.zero_grad(set_to_none=step % 2 == 0)
        if schedule is not None:
            schedule.step()
        if fault == "flip" and rank == 1 and step == 40:
            with torch.no_grad():
                held.head.bias[3] = -held.head.bias[3]
        seen.update(loss.detach().numpy().tobytes())
        if step % 50 == 49:
            model.eval()
            with torch.no_grad():
                model(x)
            model.train()
    notify(rank, seen, held)
    if record != "none":
        run.finish()


def notify(rank, seen, model):
    """Prints the digest of the losses and of the final weights."""
    for parameter in model.parameters():
        seen.update(parameter.detach().double().numpy().tobytes())
    os.write(1, f"rank {rank} {seen.hexdigest()}\n".encode())  # one write, so that lines of other ranks do not mix in


def one_rank(rank, train, record, fault, seed, ranks, meeting):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    train(rank, record, fault, seed, ranks)
    dist.destroy_process_group()


def on_ranks(train, record, fault, seed, ranks):
    """train(rank, record, fault, seed, ranks), in a process a rank if there are several."""
    if ranks == 1:
        return train(0, record, fault, seed, 1)
    with tempfile.TemporaryDirectory() as folder:
        arguments = (train, record, fault, seed, ranks, f"{folder}/meeting")
        mp.start_processes(one_rank, arguments, nprocs=ranks, start_method=os.environ.get("START_RANKS", "spawn"))


def main():
    record, fault = sys.argv[1:3]
    seed, ranks = (int(word) for word in [*sys.argv[3:], *("0", "1")[len(sys.argv) - 3 :]])
    on_ranks(train, record, fault, seed, ranks)


if __name__ == "__main__":
    main()
