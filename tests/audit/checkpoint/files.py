"""Checkpoints for the tests: a tiny model that is trained and saved, and files written by hand."""

import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

import torch

PLUMB = os.path.join(os.environ["PLUMBLINE_BIN_DIR"], "plumb")


def audit(*paths, flags=()):
    """Returns (exit status, report) of plumb audit."""
    done = subprocess.run([PLUMB, "audit", *map(str, paths), "--format", "json", *flags], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1, 2), (done.returncode, done.stderr)
    return done.returncode, json.loads(done.stdout)


def problems(report):
    return "\n".join(p for i in report["inputs"] for p in i["problems"])


def notes(report):
    return "\n".join(n for i in report["inputs"] for n in i.get("notes", []))


def serious(report):
    return [(f["rule"], f["title"], f["site"]) for f in report["findings"] if f["level"] != "note"]


class InAFolder(unittest.TestCase):
    """Each test has `self.folder`, an empty folder with the name of a run."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "exp"
        self.folder.mkdir()

    def save(self, value, name="step-1/model.pt", **options):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(value, path, **options)
        return path

    def write(self, name, data):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


class Tiny(torch.nn.Module):
    def __init__(self, width=16, words=40):
        super().__init__()
        self.embed = torch.nn.Embedding(words, width)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(2)])
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + torch.nn.functional.gelu(layer(x))
        return self.head(self.norm(x))


def train(folder, seed=0, saves=5, every=4, dtype=torch.float32, ema=False, plant=None, name="step-{}/model.pt"):
    """A series of checkpoints; `plant(step, model, optimizer, checkpoint)` may change the saved values."""
    torch.manual_seed(seed)
    model = Tiny().to(dtype)
    masters = [p.detach().clone().float().requires_grad_() for p in model.parameters()]
    trained = masters if dtype != torch.float32 else list(model.parameters())
    decay = [p for p in trained if p.ndim > 1]
    rest = [p for p in trained if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 4))
    average = {k: v.detach().clone().float() for k, v in model.state_dict().items()}
    for step in range(1, saves * every + 1):
        tokens = torch.randint(0, 40, (8, 12))
        loss = torch.nn.functional.cross_entropy(model(tokens).float().flatten(0, 1), ((tokens * 7 + 3) % 40).flatten())
        model.zero_grad()
        loss.backward()
        if trained is masters:
            for master, p in zip(masters, model.parameters()):
                master.grad = p.grad.float()
        optimizer.step()
        schedule.step()
        if trained is masters:
            with torch.no_grad():
                for master, p in zip(masters, model.parameters()):
                    p.copy_(master)
        for k, v in model.state_dict().items():
            average[k].mul_(0.9).add_(v.float(), alpha=0.1)
        if step % every:
            continue
        checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "lr_scheduler": schedule.state_dict(),
                      "iteration": step, "rng_state": torch.get_rng_state()}
        if ema:
            checkpoint["ema"] = {k: v.clone() for k, v in average.items()}
        if plant:
            plant(step, model, optimizer, checkpoint)
        path = os.path.join(folder, name.format(step))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        torch.save(checkpoint, path)


DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}


def safetensors(tensors, metadata=None):
    """The bytes of a safetensors file."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, tensor in tensors.items():
        raw = bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes()) if tensor.dim() else bytes(tensor.numpy().tobytes())
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data
