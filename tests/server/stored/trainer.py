"""trainer.py RUN RECORD SERVER: four steps of a router whose full experts keep the best scores, a loss that becomes NaN."""

import array
import math
import random
import sys

import numpy as np
import plumbline

TOKENS, EXPERTS, TOP_K, STEPS = 64, 4, 1, 4


def route(logits):
    """Returns the choice of each token, and whether it is kept: each expert keeps the best CAPACITY scores."""
    capacity = TOKENS * TOP_K // EXPERTS
    chosen = [max(range(EXPERTS), key=row.__getitem__) for row in logits]
    kept = [False] * TOKENS
    for expert in range(EXPERTS):
        tokens = [t for t in range(TOKENS) if chosen[t] == expert]
        for token in sorted(tokens, key=lambda t: -logits[t][expert])[:capacity]:
            kept[token] = True
    return chosen, kept, capacity


def main(name, record, server):
    source = random.Random(7)
    run = plumbline.init(run=name, record=record, server=server, every=1)
    for step in range(STEPS):
        with run.step(step):
            logits = [[source.gauss(0, 1) + 1.5 * (EXPERTS - e) / EXPERTS for e in range(EXPERTS)] for _ in range(TOKENS)]
            logits = [list(array.array("f", row)) for row in logits]
            chosen, kept, capacity = route(logits)
            run.observe_routing(
                "layers.0", np.array(logits, np.float32), topk_indices=np.array(chosen)[:, None], keep_mask=np.array(kept)[:, None],
                sequence_id=np.repeat(np.arange(2), TOKENS // 2), position=np.tile(np.arange(TOKENS // 2), 2),
                pool_id=np.full(TOKENS, step), top_k=TOP_K, capacity=capacity, policy="score-capacity", score_function="identity",
                pool="microbatch", flatten="batch-major",
            )  # fmt: skip
            run.scalar("loss", 2.0 - 0.01 * step if step < STEPS - 1 else math.nan)
    run.finish(30)


if __name__ == "__main__":
    main(*sys.argv[1:])
