#!/usr/bin/python3
"""What one call from Python costs the trainer, in microseconds: best of many short blocks.

    PYTHONPATH=build/dev/python /usr/bin/python3 bench/agent/python_bench.py

PLUMBLINE_AGENT_LIBRARY chooses the agent. The empty call with the same arguments is the floor.
"""

import shutil
import tempfile
import time

import plumbline
import torch

CALLS = 200


def best(call, before=lambda: None, after=lambda: None, blocks=300):
    """The best block's time per call, without the loop's own."""
    fastest = float("inf")
    empty = float("inf")
    for _ in range(blocks):
        before()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        middle = time.perf_counter()
        for _ in range(CALLS):
            pass
        end = time.perf_counter()
        after()
        fastest = min(fastest, middle - start)
        empty = min(empty, end - middle)
    return (fastest - empty) / CALLS * 1e6


def arguments(tokens=8, experts=4, k=2):
    logits = torch.randn(tokens, experts, requires_grad=True)
    return logits, {
        "topk_indices": logits.topk(k).indices,
        "keep_mask": torch.ones(tokens, k, dtype=torch.bool),
        "sequence_id": torch.zeros(tokens, dtype=torch.int64),
        "position": torch.arange(tokens),
        "top_k": k,
    }


class Steps:
    """Each block of calls is one step of the run."""

    def __init__(self, run):
        self.run, self.number = run, 0

    def begin(self):
        self.step = self.run.step(self.number)
        self.step.__enter__()

    def end(self):
        self.step.__exit__(None, None, None)
        self.run.flush()
        self.number += 1


def floor(layer, router_logits=None, router_scores=None, topk_indices=None, keep_mask=None,
          routing_map=None, probs=None, expert_bias=None, sequence_id=None, position=None,
          padding_mask=None, pool_id=None, top_k=None, score_function=None, capacity=None,
          groups=None, top_groups=None, group_score=None, pool=None, flatten=None,
          randomness=None, bias_captured=None, mode=None):  # fmt: skip
    return None


def main():
    directory = tempfile.mkdtemp(prefix="python_bench_")
    logits, rest = arguments()
    rows = [("empty function, same arguments", best(lambda: floor("layers.3", logits, **rest)))]

    seldom = plumbline.init(run="seldom", record=directory, every=2**30)
    steps = Steps(seldom)
    steps.begin()
    seldom.observe_routing("layers.3", logits, **rest)
    steps.end()
    rows.append(("observe_routing, not due", best(
        lambda: seldom.observe_routing("layers.3", logits, **rest), steps.begin, steps.end)))  # fmt: skip
    seldom.finish()

    always = plumbline.init(run="always", record=directory, every=1)
    steps = Steps(always)
    rows.append(("observe_routing, due, 5 tensors", best(
        lambda: always.observe_routing("layers.3", logits, **rest), steps.begin, steps.end)))  # fmt: skip
    rows.append(("scalar", best(lambda: always.scalar("loss", 2.3), steps.begin, steps.end)))

    def span():
        with always.span("forward"):
            pass

    rows.append(("span, begin and end", best(span, steps.begin, steps.end)))
    always.finish()
    shutil.rmtree(directory)
    for name, micros in rows:
        print(f"{name:36s} {micros:8.3f} µs")


main()
