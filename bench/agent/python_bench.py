#!/usr/bin/python3
"""Measures the cost of one call from Python for the trainer, in microseconds: the best of many short blocks.

    PYTHONPATH=build/dev/python /usr/bin/python3 bench/agent/python_bench.py

PLUMBLINE_AGENT_LIBRARY chooses the agent. The empty call with the same arguments is the floor.
"""

import os
import shutil
import tempfile
import time

import plumbline
import torch

CALLS = 200


def best(statement, names, before=lambda: None, after=lambda: None, blocks=300):
    """Returns the best block's time per statement, without that of the loop."""
    loops = {}
    for name, body in (("timed", statement), ("empty", "pass")):
        parameters = ", ".join(names)
        exec(f"def {name}({parameters}):\n    for _ in range({CALLS}):\n        {body}", loops)
    fastest = {"timed": float("inf"), "empty": float("inf")}
    for _ in range(blocks):
        before()
        for name in fastest:
            start = time.perf_counter()
            loops[name](**names)
            fastest[name] = min(fastest[name], time.perf_counter() - start)
        after()
    return (fastest["timed"] - fastest["empty"]) / CALLS * 1e6


OBSERVE = (
    'f("layers.3", logits, topk_indices=indices, keep_mask=kept, sequence_id=sequence, '
    "position=position, top_k=2)"
)


OTHERS = (
    ("observe_tensor", 'run.observe_tensor("layers.3.w", x, role="weight")'),
    ("observe_update", 'run.observe_update("layers.3.w", x, x, x, optimizer="sgd", lr=0.1)'),
    ("observe_reduction", 'run.observe_reduction("gradients", x, x, op="sum")'),
)


def arguments(tokens=8, experts=4):
    logits = torch.randn(tokens, experts, requires_grad=True)
    return {
        "logits": logits,
        "indices": logits.topk(2).indices,
        "kept": torch.ones(tokens, 2, dtype=torch.bool),
        "sequence": torch.zeros(tokens, dtype=torch.int64),
        "position": torch.arange(tokens),
    }


class Bucket:
    """The part of DDP's bucket that a hook uses."""

    def __init__(self, elements):
        self._buffer = torch.randn(elements)

    def index(self):
        return 0

    def buffer(self):
        return self._buffer


def hooks(directory):
    """Measures a hook that sends 2^20 elements to a gloo group of one rank: plain, and observed."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=0, world_size=1)
    bucket = Bucket(1 << 20)

    def send(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])

    def timed(hook, before, after):
        names = {"h": hook, "b": bucket}
        return best("h(None, b).wait()", names, before, after, blocks=30)

    rows = [("hook, plain", timed(send, lambda: None, lambda: None))]
    for name, every, traffic in (
        ("not due", 2**30, "3072"),
        ("due, no elements kept", 1, "1"),
        ("due, 1,024 elements kept", 1, str(1 << 40)),
    ):
        os.environ["PLUMBLINE_TRAFFIC_BYTES"] = traffic
        run = plumbline.init(run=name, record=directory, every=every)
        hook = run.observed(send)
        steps = Steps(run, only_due=False)
        for _ in range(10):  # the opening steps keep elements
            steps.begin()
            hook(None, bucket).wait()
            steps.end()
        rows.append((f"hook, {name}", timed(hook, steps.begin, steps.end)))
        run.finish()
    dist.destroy_process_group()
    return rows


class Steps:
    """Makes each block of calls one step of the run, the next at which all its sites are due."""

    def __init__(self, run, only_due):
        self.run, self.number, self.only_due = run, 0, only_due

    def begin(self):
        self.step = self.run.step(self.number)
        self.step.__enter__()

    def end(self):
        self.step.__exit__(None, None, None)
        self.run.flush()
        words = [*self.run._due.values(), *(site.word for site in self.run._open_sites.values())]
        due = [word[0] for word in words] if self.only_due else []
        self.number = max([self.number + 1, *due])


def floor(layer, router_logits=None, router_scores=None, topk_indices=None, keep_mask=None,
          routing_map=None, probs=None, expert_bias=None, sequence_id=None, position=None,
          padding_mask=None, pool_id=None, top_k=None, score_function=None, capacity=None,
          groups=None, top_groups=None, group_score=None, pool=None, flatten=None,
          randomness=None, bias_captured=None, mode=None):  # fmt: skip
    return None


def main():
    directory = tempfile.mkdtemp(prefix="python_bench_")
    tensors = arguments()
    rows = [("empty function, same arguments", best(OBSERVE, {"f": floor, **tensors}))]

    seldom = plumbline.init(run="seldom", record=directory, every=2**30)
    observe = {"f": seldom.observe_routing, **tensors}
    steps = Steps(seldom, only_due=False)
    steps.begin()
    best(OBSERVE, observe, blocks=1)  # loads the agent
    steps.end()
    rows.append(("observe_routing, not due", best(OBSERVE, observe, steps.begin, steps.end)))
    small = torch.randn(16)
    more = {"run": seldom, "x": small}
    for name, statement in OTHERS:
        steps.begin()
        best(statement, more, blocks=1)  # makes the site
        steps.end()
        rows.append((f"{name}, not due", best(statement, more, steps.begin, steps.end)))
    seldom.finish()

    always = plumbline.init(run="always", record=directory, every=1)
    observe = {"f": always.observe_routing, **tensors}
    steps = Steps(always, only_due=True)
    rows.append(("observe_routing, due, 5 tensors", best(OBSERVE, observe, steps.begin, steps.end)))
    more = {"run": always, "x": small}
    for name, statement in OTHERS:
        rows.append((f"{name}, due, 16 elements", best(statement, more, steps.begin, steps.end)))
    scalar = {"f": always.scalar}
    rows.append(("scalar", best('f("loss", 2.3)', scalar, steps.begin, steps.end)))
    span = {"f": always.span}
    rows.append(("span, begin and end", best('\n            '.join(['with f("forward"):', "pass"]),
                                             span, steps.begin, steps.end)))  # fmt: skip
    always.finish()
    rows += hooks(directory)
    shutil.rmtree(directory)
    for name, micros in rows:
        print(f"{name:36s} {micros:8.3f} µs")


main()
