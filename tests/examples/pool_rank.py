"""One rank of a world whose experts serve all ranks at once: streams its rows and dumps them.

Every rank derives the whole world's logits from one seed, as an all-to-all would pass them to the experts, routes them
all, and records the rows of its own two sequences, which it numbers itself.
"""

import argparse
import dataclasses
import itertools

import torch

import support  # noqa: F401  (finds the example, and skips where there is no torch)
import plumbline
from routers import route
from safetensors_file import write

EXPERTS, TOP_K, SEQUENCES, LENGTH = 8, 2, 2, 64
CALLS = 2  # micro-batches per step
WAITS = 2  # the ranks wait before these steps: for the slowest import, and for all first steps
OWN = SEQUENCES * LENGTH  # rows per rank


@dataclasses.dataclass
class Layer:
    name: str
    policy: str
    pool: str
    ranks_a_pool: int = 0  # 0: all
    absent: tuple = ()     # ranks that use another name, so that the pool lacks their rows


def layers(world):
    return [Layer("leaking", "score-drop", "world"),
            Layer("clean", "fifo", "world"),
            Layer("grouped", "score-drop", "group", ranks_a_pool=world // 2),
            Layer("lacking", "score-drop", "world", absent=(1,))]


def pool_logits(seed, ranks):
    random = torch.Generator().manual_seed(seed)
    popularity = 0.7 * torch.randn(EXPERTS, generator=random)
    return popularity + torch.randn(ranks * OWN, EXPERTS, generator=random)


def own_rows(layer, seed, rank, world):
    """Returns the arguments of observe_routing: tensors by name, and other fields."""
    ranks = layer.ranks_a_pool or world
    pool, place = divmod(rank, ranks)
    routing = route(layer.policy, pool_logits(100 * seed + pool, ranks), TOP_K)
    own = slice(place * OWN, (place + 1) * OWN)
    rows = torch.arange(OWN)
    tensors = {"router_logits": routing.logits[own], "topk_indices": routing.indices[own],
               "keep_mask": routing.keep[own], "sequence_id": rows // LENGTH,
               "position": rows % LENGTH, "pool_id": torch.full_like(rows, pool)}
    stated = {"top_k": TOP_K, "score_function": "softmax", "capacity": routing.capacity,
            "policy": {"score-drop": "score-capacity", "fifo": "fifo-capacity"}[layer.policy],
            "pool": layer.pool, "flatten": "batch-major", "mode": "train"}
    return tensors, stated


def wait_for_the_others(run):
    """Waits like a collective: no rank starts its next step before all others have reported."""
    if not run.flush(support.PATIENCE):
        raise SystemExit("what was sent so far was not delivered")
    print("here", flush=True)
    input()


def main():
    parser = argparse.ArgumentParser()
    for name in ("run", "server", "dumps", "record"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("rank", "world", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    run = plumbline.init(run=args.run, server=args.server, record=args.record, rank=args.rank,
                         world_size=args.world, every=1, strict=True)
    for step in range(args.steps):
        if step < WAITS:
            wait_for_the_others(run)
        with run.step(step):
            for layer, call in itertools.product(layers(args.world), range(CALLS)):
                if args.rank in layer.absent:  # the same number of bytes as the others: one cadence for all
                    layer = dataclasses.replace(layer, name="stray")
                tensors, stated = own_rows(layer, CALLS * step + call, args.rank, args.world)
                run.observe_routing(layer.name, **tensors, **stated)
                where = {"kind": "routing", "run": args.run, "layer": layer.name, "step": step,
                         "rank": args.rank, "world_size": args.world}
                write(f"{args.dumps}/{layer.name}-{step}-{args.rank}-{call}.safetensors", tensors,
                      {**where, **stated})
    if not run.flush(support.PATIENCE) or not run.finish(support.PATIENCE):
        raise SystemExit("the rank's evidence was not delivered")


if __name__ == "__main__":
    main()
