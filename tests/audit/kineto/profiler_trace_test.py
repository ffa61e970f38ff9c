"""A trace that the installed PyTorch's profiler writes on a machine without a GPU: readable, idle inconclusive."""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

PLUMB = pathlib.Path(os.environ["PLUMBLINE_BIN_DIR"]) / "plumb"


def record(path):
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(torch.randn(256, 32), batch_size=16)
    done = lambda p: p.export_chrome_trace(str(path))
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=6),
                 on_trace_ready=done, with_stack=True) as p:
        for batch, _ in zip(loader, range(8)):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            p.step()


def audit(*arguments):
    ended = subprocess.run([str(PLUMB), "audit", "--format", "json", *map(str, arguments)], capture_output=True, text=True)
    return ended.returncode, json.loads(ended.stdout)


with tempfile.TemporaryDirectory() as folder:
    plain = pathlib.Path(folder) / "trace.json"
    record(plain)
    packed = pathlib.Path(folder) / "packed" / "trace.json.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    # An object with Kineto; without it (Debian's build) a bare list.
    written = json.loads(plain.read_text())
    events = written if isinstance(written, list) else written["traceEvents"]
    steps = sorted({int(e["name"].split("#")[1]) for e in events if e.get("name", "").startswith("ProfilerStep#")})
    assert steps, "the profiler marked no step"
    for path in (plain, packed):
        status, report = audit(path)
        entry, = report["inputs"]
        assert status == 0, (status, report["findings"])
        assert entry["format"] == "kineto" and not entry["problems"], entry
        assert entry["records"] == len(events), (entry["records"], len(events))
        verdicts = {v["rule"]: v for v in report["verdicts"]}
        comb = verdicts["performance/idle-comb"]
        assert comb["verdict"] == "inconclusive" and comb["reason"].startswith("no-gpu-events"), comb
        # The marked steps, of the only rank.
        assert comb["site"]["ranks"] == [0] and (comb["site"]["step_first"], comb["site"]["step_last"]) == (steps[0], steps[-1]), comb["site"]
        assert not report["findings"], report["findings"]
print("ok")
