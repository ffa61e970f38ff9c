"""numpy_trainer.py RUN [RECORD [SERVER]]: a small router without PyTorch, whose full experts keep the best scores.

So a token's expert depends on later tokens, which causality/moe-future-leak proves by replay.
"""

import sys
import time

started = time.perf_counter()

import numpy as np  # noqa: E402

TOKENS, EXPERTS, TOP_K, SEQUENCES = 256, 8, 2, 4
CAPACITY = TOKENS * TOP_K // EXPERTS


def route(logits):
    """Returns choices [T, k], and which are kept: for each expert the best CAPACITY scores."""
    scores = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, :TOP_K]
    keep = np.zeros_like(chosen, dtype=bool)
    for expert in range(EXPERTS):
        token, place = np.nonzero(chosen == expert)
        best = np.argsort(-scores[token, expert], kind="stable")[:CAPACITY]
        keep[token[best], place[best]] = True
    return chosen.astype(np.int64), keep


def main(name, record=None, server=None):
    import plumbline

    run = plumbline.init(run=name, record=record, server=server, every=1)
    generator = np.random.default_rng(7)
    bias = np.linspace(1.5, 0, EXPERTS)  # some experts become full
    sequence = np.repeat(np.arange(SEQUENCES), TOKENS // SEQUENCES)
    position = np.tile(np.arange(TOKENS // SEQUENCES), SEQUENCES)
    for step in range(8):
        with run.step(step):
            logits = (generator.standard_normal((TOKENS, EXPERTS)) + bias).astype(np.float32)
            chosen, keep = route(logits)
            run.observe_routing(
                "layers.0",
                logits,
                topk_indices=chosen,
                keep_mask=keep,
                sequence_id=sequence,
                position=position,
                pool_id=np.full(TOKENS, step),
                top_k=TOP_K,
                capacity=CAPACITY,
                policy="score-capacity",
                score_function="softmax",
                pool="microbatch",
                flatten="batch-major",
            )
            run.scalar("loss", 2.0 - 0.01 * step)
    run.flush()
    run.finish(30)
    print(f"trained in {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main(*(word or None for word in sys.argv[1:]))
