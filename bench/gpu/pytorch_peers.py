"""Measures PyTorch's time for the figures of our kernels, with one operation each: the peer of our kernels. Times are
medians of CUDA events on one stream.

    pytorch_peers.py        the last line of output is JSON: {"torch": ..., "peers": {benchmark:
                            {"nanoseconds": of all operations, "operations": {name: nanoseconds}}}}

The names are those of the benchmarks in bench/gpu that have the same input.
"""

import json
import statistics
import sys

LARGE = 1 << 28  # elements, as in stats_bench.cu
ROWS, WIDTH = 1024, 151936  # as in logits_bench.cu
REPETITIONS = 9


def statistics_of(torch, x):
    """Returns the figures of TensorStats, except the digest and the histogram."""
    tiny = torch.finfo(x.dtype).tiny
    return {
        "sum": lambda: torch.sum(x, dtype=torch.float32),
        "magnitude": lambda: torch.linalg.vector_norm(x, 1, dtype=torch.float32),
        "square": lambda: torch.linalg.vector_norm(x, 2, dtype=torch.float32),
        "nan": lambda: torch.isnan(x).sum(),
        "infinity": lambda: torch.isinf(x).sum(),
        "zero": lambda: torch.count_nonzero(x),
        "subnormal": lambda: ((x != 0) & (x.abs() < tiny)).sum(),
        "extremes": lambda: torch.aminmax(x),
    }


def pair_of(torch, train, rollout):
    """Returns the figures of a logit pair, as a trainer that compares two engines computes them."""
    kept = {}

    def side(name, logits):
        def log_softmax():
            kept[name] = torch.log_softmax(logits, -1, dtype=torch.float32)

        def moments():
            p = kept[name].exp()
            entropy = (p * kept[name]).sum(-1)
            return (p * (kept[name] - entropy[:, None]).square()).sum(-1)

        return {f"{name} log_softmax": log_softmax, f"{name} entropy and spread": moments,
                f"{name} argmax": lambda: logits.argmax(-1)}

    def difference():
        d = train.float() - rollout.float()
        mean = d.mean(-1, keepdim=True)
        return (d - mean).abs().amax(-1), rollout.float().square().sum(-1), (rollout.float() * d).sum(-1)

    return {
        **side("train", train), **side("rollout", rollout),
        "divergence": lambda: (kept["train"].exp() * (kept["train"] - kept["rollout"])).sum(-1),
        "divergence back": lambda: (kept["rollout"].exp() *
                                    (kept["rollout"] - kept["train"])).sum(-1),
        "difference": difference,
    }


def timed(torch, operation):
    """Returns the nanoseconds of one call, by the GPU's clock."""
    for _ in range(3):
        operation()
    torch.cuda.synchronize()
    took = []
    for _ in range(REPETITIONS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(100_000)  # work enqueued meanwhile runs without a gap
        begin.record()
        operation()
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end) * 1e6)
    return statistics.median(took)


def peer(torch, operations):
    each = {name: timed(torch, operation) for name, operation in operations.items()}
    return {"nanoseconds": sum(each.values()), "operations": each}


def cases(torch):
    """Returns {benchmark: its operations}. They are created on demand, because together they would not fit in memory."""
    def stats(dtype):
        return lambda: statistics_of(torch, (torch.randn(LARGE, device="cuda") * 0.02).to(dtype))

    def pair(dtype):
        return lambda: pair_of(torch, *(torch.randn(ROWS, WIDTH, device="cuda").mul_(4).to(dtype)
                                        for _ in range(2)))

    return {f"Stats/f32/{LARGE}/manual_time": stats(torch.float32),
            f"Stats/bf16/{LARGE}/manual_time": stats(torch.bfloat16),
            f"Pair/bf16/{ROWS}/{WIDTH}/manual_time": pair(torch.bfloat16),
            f"Pair/f32/{ROWS}/{WIDTH}/manual_time": pair(torch.float32)}


def main():
    try:
        import torch
    except ImportError as why:
        print(f"skipped: {why}")
        return 77
    if not torch.cuda.is_available():
        print("skipped: PyTorch sees no CUDA GPU")
        return 77
    peers = {}
    for benchmark, made in cases(torch).items():
        peers[benchmark] = peer(torch, made())
        torch.cuda.empty_cache()
    print(json.dumps({"torch": torch.__version__, "peers": peers}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
