"""Makes small recordings of a real PyTorch on a GPU, for tests of readers: a Kineto trace with GPU events, NCCL's
flight recorder and NCCL's log.

    record_pytorch.py DIR       one process, one GPU; the last line of output is JSON
"""

import json
import os
import pathlib
import sys

STEPS = 4


def train(torch, distributed):
    """Trains a few steps of a small model whose gradients are reduced, as with DDP."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(),
                                torch.nn.Linear(1024, 512)).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        with torch.profiler.record_function(f"step {step}"):
            x = torch.randn(256, 512, device="cuda", dtype=torch.bfloat16)
            loss = (model(x) - x).square().mean()
            loss.backward()
            for parameter in model.parameters():
                distributed.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
    torch.cuda.synchronize()


def flight_recorder(folder):
    """Writes the dump that PyTorch writes when a job hangs. Returns "", or why there is none."""
    from torch._C import _distributed_c10d
    dump = getattr(_distributed_c10d, "_dump_nccl_trace", None)
    if dump is None:
        return "this PyTorch has no flight recorder"
    (folder / "nccl_trace_rank_0").write_bytes(dump())
    return ""


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1",
                      NCCL_SOCKET_IFNAME="lo", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,COLL,GRAPH,TUNING",
                      NCCL_DEBUG_FILE=str(folder / "nccl.log"), TORCH_NCCL_TRACE_BUFFER_SIZE="200",
                      TORCH_FR_BUFFER_SIZE="200")
    try:
        import torch
        import torch.distributed as distributed
    except ImportError as why:
        print(f"skipped: no PyTorch: {why}")
        return 77
    if not torch.cuda.is_available():
        print(f"skipped: PyTorch {torch.__version__} sees no CUDA GPU")
        return 77
    distributed.init_process_group("nccl")
    train(torch, distributed)  # loads kernels, so that typical steps are recorded
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        train(torch, distributed)
    profiler.export_chrome_trace(str(folder / "kineto.json.gz"))
    missing = flight_recorder(folder)
    distributed.destroy_process_group()
    sizes = {p.name: p.stat().st_size for p in sorted(folder.iterdir()) if p.is_file()}
    print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda,
                      "nccl": list(torch.cuda.nccl.version()), "bytes": sizes,
                      "missing": missing}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
