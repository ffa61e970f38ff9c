"""A small mixture of experts with the two lines in it. Prints a digest of its losses and weights.

    watched_routers.py RECORD KIND [SEED]     RECORD: a folder, or "none": without Plumbline; KIND: of router_kinds
"""

import hashlib
import os
import sys

import torch
from torch import nn

import plumbline
from router_kinds import KINDS, Model

STEPS = int(os.environ.get("STEPS", "12"))
REPORTS = os.environ.get("REPORTS")  # name of a layer whose routing the trainer reports itself


def main():
    record, kind = sys.argv[1:3]
    torch.manual_seed(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    torch.set_num_threads(1)
    if record != "none":
        run = plumbline.init(run="watched", record=record, every=1)
    model = Model(KINDS[kind])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if record != "none":
        run.watch(model, optimizer)
    seen = hashlib.sha256()
    for _ in range(STEPS):
        ids = torch.randint(0, 64, (8, 33))
        logits = model(ids[:, :-1])
        if REPORTS:
            run.observe_routing(REPORTS, torch.eye(8), topk_indices=torch.arange(8)[:, None], top_k=1)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.update(loss.detach().numpy().tobytes())
        model.eval()
        with torch.no_grad():
            model(ids[:2, :-1])
        model.train()
    for parameter in model.parameters():
        seen.update(parameter.detach().double().numpy().tobytes())
    print(seen.hexdigest())
    if record != "none":
        run.finish()


if __name__ == "__main__":
    main()
