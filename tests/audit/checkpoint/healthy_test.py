"""Healthy series of checkpoints from many kinds of runs, without warnings: 12 series, 200 with PLUMB_LONG=1."""

import os
import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
try:
    import torch
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import audit, problems, serious
from torch import nn
from torch.nn import functional as F

LONG = bool(os.environ.get("PLUMB_LONG"))
WORDS = 48


class Block(nn.Module):
    def __init__(self, width, experts=0):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.router = nn.Linear(width, experts, bias=False) if experts else None
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)) for _ in range(max(experts, 1))])

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), dtype=x.dtype).triu(1)
        x = x + self.proj(torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + mask, -1) @ v)
        y = self.ln_2(x)
        if self.router is None:
            return x + self.experts[0](y)
        gate = torch.softmax(self.router(y), -1)
        top, which = gate.max(-1)
        out = torch.stack([e(y) for e in self.experts], -2)
        return x + top.unsqueeze(-1) * out.gather(-2, which[..., None, None].expand(*which.shape, 1, y.shape[-1])).squeeze(-2)


class Words(nn.Module):
    def __init__(self, width=32, layers=2, tied=False, experts=0):
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList([Block(width, experts) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, WORDS, bias=False)
        if tied:
            self.lm_head.weight = self.embed_tokens.weight

    def loss(self, generator):
        tokens = torch.randint(0, WORDS, (4, 12), generator=generator)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.lm_head(self.norm(x)).float().flatten(0, 1), ((tokens * 7 + 3) % WORDS).flatten())


class Pictures(nn.Module):
    """Convolutions with running statistics."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12)
        self.conv2, self.bn2 = nn.Conv2d(12, 16, 3), nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, 10)

    def loss(self, generator):
        x = torch.randn(8, 3, 8, 8, generator=generator)
        y = torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))
        return F.cross_entropy(self.fc(y.mean((2, 3))), (x.mean((1, 2, 3)) * 40).long().clamp(0, 9))


class Lora(nn.Module):
    """A frozen linear layer with two small factors next to it, the second zero."""

    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.lora_A.t() @ self.lora_B.t()


def model_of(kind):
    if kind == "pictures":
        return Pictures()
    model = Words(tied=kind == "tied", experts=4 if kind == "experts" else 0)
    if kind == "frozen":
        for module in (model.embed_tokens, model.layers[0]):
            module.requires_grad_(False)
    if kind == "lora":
        model.requires_grad_(False)
        for layer in model.layers:
            layer.qkv, layer.proj = Lora(layer.qkv), Lora(layer.proj)
    return model


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3, weight_decay=0.1),
    "adamw-95": lambda p: torch.optim.AdamW(p, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-3, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "plain": lambda p: torch.optim.SGD(p, lr=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.02),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-3),
    "adamax": lambda p: torch.optim.Adamax(p, lr=2e-3),
    "groups": lambda p: torch.optim.AdamW([{"params": [x for x in p if x.dim() > 1]}, {"params": [x for x in p if x.dim() < 2], "weight_decay": 0.0, "lr": 1e-4}], lr=3e-3),
}

SCHEDULES = {
    "none": lambda o, n: None,
    "warm": lambda o, n: torch.optim.lr_scheduler.LambdaLR(o, lambda i: min(1.0, (i + 1) / 10)),
    "cosine": lambda o, n: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=n),
    "restarts": lambda o, n: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=max(n // 3, 1)),
    "step": lambda o, n: torch.optim.lr_scheduler.StepLR(o, step_size=max(n // 2, 1), gamma=0.1),
    "linear": lambda o, n: torch.optim.lr_scheduler.LinearLR(o, start_factor=1.0, end_factor=0.01, total_iters=n),
}


class Run:
    """One recipe, drawn from a seed."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.kind = draw.choice(["words", "words", "tied", "frozen", "lora", "experts", "pictures"])
        self.optimizer = draw.choice(sorted(OPTIMIZERS))
        self.schedule = draw.choice(sorted(SCHEDULES))
        self.dtype = draw.choice(["f32", "f32", "masters", "bf16"]) if self.kind in ("words", "tied") and self.optimizer.startswith("ada") else "f32"
        if self.dtype == "bf16":
            self.optimizer = "adamw-95"
        self.average = draw.choice(["none", "none", "dict", "module"]) if self.dtype == "f32" else "none"
        self.resumes = draw.random() < 0.4
        self.frozen_on_the_way = draw.random() < 0.15 and self.kind == "words"
        self.saves, self.every = draw.choice([(4, 6), (6, 5), (12, 3)]), 0
        self.saves, self.every = self.saves
        self.name = draw.choice(["step-{}/model.pt", "ckpt_{}.pt", "checkpoint-{}/pytorch_model.bin", "epoch=1-step={}.ckpt"])
        self.keys = draw.choice([("model", "optimizer", "lr_scheduler"), ("state_dict", "optimizer_states", "lr_schedulers"), ("module", "optimizer_state_dict", "scheduler")])
        self.seed = seed

    def __str__(self):
        return f"{self.seed}: {vars(self)}"

    def build(self):
        self.model = model_of(self.kind)
        if self.dtype != "f32":
            self.model = self.model.to(torch.bfloat16)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.trained = [nn.Parameter(p.detach().float()) for p in self.parameters] if self.dtype == "masters" else self.parameters
        self.optim = OPTIMIZERS[self.optimizer](self.trained)
        self.rates = SCHEDULES[self.schedule](self.optim, self.saves * self.every + 20)
        if self.average == "module":
            self.averaged = torch.optim.swa_utils.AveragedModel(self.model, avg_fn=lambda e, p, n: 0.99 * e + 0.01 * p)

    def train(self, folder):
        torch.manual_seed(self.seed)
        self.build()
        self.shadow = {k: v.clone().float() for k, v in self.model.state_dict().items()}
        generator = torch.Generator().manual_seed(self.seed)
        for step in range(1, self.saves * self.every + 1):
            self.step(step, generator)
            if step % self.every == 0:
                self.save(folder, step)
                if self.resumes and step == self.every * (self.saves // 2):
                    self.resume(folder, step)

    def step(self, step, generator):
        if self.frozen_on_the_way and step == self.every * 2:
            self.model.layers[0].requires_grad_(False)
        self.optim.zero_grad()
        for p in self.parameters:
            p.grad = None
        self.model.loss(generator).backward()
        if self.dtype == "masters":
            for master, p in zip(self.trained, self.parameters):
                master.grad = None if p.grad is None else p.grad.float()
        torch.nn.utils.clip_grad_norm_([p for p in self.trained if p.grad is not None], 1.0)
        self.optim.step()
        if self.dtype == "masters":
            with torch.no_grad():
                for master, p in zip(self.trained, self.parameters):
                    p.copy_(master)
        if self.rates:
            self.rates.step()
        if self.average == "module":
            self.averaged.update_parameters(self.model)
        for k, v in self.model.state_dict().items():
            self.shadow[k] += 0.01 * (v.float() - self.shadow[k])

    def save(self, folder, step):
        model, optimizer, schedule = self.keys
        listed = optimizer == "optimizer_states"
        states = self.optim.state_dict()
        if self.dtype == "masters":
            states["state"] = {i: {**s, "master_param": self.trained[i].detach().clone()} for i, s in states["state"].items()}
        checkpoint = {model: self.model.state_dict(), optimizer: [states] if listed else states, "global_step": step, "rng_state": torch.get_rng_state(), "args": {"lr": 0.1}}
        if self.rates:
            checkpoint[schedule] = [self.rates.state_dict()] if listed else self.rates.state_dict()
        if self.average == "dict":
            checkpoint["ema"] = self.shadow
        elif self.average == "module":
            checkpoint["model_ema"] = self.averaged.state_dict()
        path = pathlib.Path(folder) / self.name.format(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(checkpoint, path)

    def resume(self, folder, step):
        """Like a trainer: everything is built again and loaded."""
        checkpoint = torch.load(pathlib.Path(folder) / self.name.format(step))
        model, optimizer, schedule = (checkpoint.get(k) for k in self.keys)
        frozen = [n for n, p in self.model.named_parameters() if not p.requires_grad]
        masters = [t.detach().clone() for t in self.trained]
        average = self.averaged.state_dict() if self.average == "module" else None
        self.build()
        self.model.load_state_dict(model)
        for name, p in self.model.named_parameters():
            p.requires_grad_(name not in frozen)
        optimizer = optimizer[0] if isinstance(optimizer, list) else optimizer
        if self.dtype == "masters":
            with torch.no_grad():
                for master, kept in zip(self.trained, masters):
                    master.copy_(kept)
            optimizer["state"] = {i: {k: v for k, v in s.items() if k != "master_param"} for i, s in optimizer["state"].items()}
        self.optim.load_state_dict(optimizer)
        if self.rates:
            self.rates.load_state_dict(schedule[0] if isinstance(schedule, list) else schedule)
        if average:
            self.averaged.load_state_dict(average)


class Healthy(unittest.TestCase):
    def test_nothing_to_warn_of(self):
        judged = 0
        for seed in range(200 if LONG else 12):
            run = Run(seed)
            with self.subTest(str(run)), tempfile.TemporaryDirectory() as folder:
                folder = os.path.join(folder, "exp")
                run.train(folder)
                status, report = audit(folder)
                self.assertEqual((status, problems(report), serious(report)), (0, "", []))
                self.assertGreater(report["coverage"]["judged"], 12)
                judged += report["coverage"]["judged"]
        print(f"{judged} verdicts")


if __name__ == "__main__":
    unittest.main()
