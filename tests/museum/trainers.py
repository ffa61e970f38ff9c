"""Small plain trainers: a model, its data, a recipe. Each is trained as its user would write it, with the two lines of Plumbline."""

import contextlib
import copy
import math

import torch
from torch import nn
from torch.nn import functional

WORDS, LENGTH, CLASSES = 48, 24, 6


class Classifier(nn.Module):
    """Points of six clouds."""

    def __init__(self, width=48, dropout=0.0, norm=None):
        super().__init__()
        norms = {None: nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}[norm]
        self.first = nn.Sequential(nn.Linear(16, width), norms(width), nn.ReLU(), nn.Dropout(dropout))
        self.second = nn.Sequential(nn.Linear(width, width), norms(width), nn.ReLU())
        self.head = nn.Linear(width, CLASSES)

    def logits(self, x):
        return self.head(self.second(self.first(x)))

    def forward(self, batch):
        x, y = batch
        return functional.cross_entropy(self.logits(x), y)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8 * 9, CLASSES)

    def forward(self, batch):
        x, y = batch
        return functional.cross_entropy(self.head(self.body(x).flatten(1)), y)


class Regression(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, batch):
        x, y = batch
        return functional.mse_loss(self.body(x).squeeze(1), y)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, batch):
        return functional.mse_loss(self.decoder(self.encoder(batch[0])), batch[0])


class Recurrent(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(WORDS, width), nn.GRU(width, width, batch_first=True), nn.Linear(width, WORDS)

    def forward(self, words):
        hidden, _ = self.body(self.embed(words[:, :-1]))
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), words[:, 1:].flatten())


class Attention(nn.Module):
    """`positions`: the dtype of the rotary positions; None: learned ones."""

    def __init__(self, width, positions=None):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        if positions is not None:
            self.register_buffer("inv_freq", (1.0 / (10000 ** (torch.arange(0, width, 2) / width))).to(positions))
        self.positions = positions

    def turn(self, x):
        places = torch.arange(x.shape[1]).to(self.positions)
        angles = torch.outer(places, self.inv_freq).float()
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.positions is not None:
            q, k = self.turn(q), self.turn(k)
        later = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        weights = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).masked_fill(later, -1e9).softmax(-1)
        return self.out(weights @ v)


class Mixture(nn.Module):
    """Four experts, two for each token."""

    def __init__(self, width, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)) for _ in range(experts)])
        self.balance = 0.02

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        scores = self.gate(flat).softmax(-1)
        weights, chosen = scores.topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, which = (chosen == number).nonzero(as_tuple=True)
            if len(rows):
                out = out.index_add(0, rows, expert(flat[rows]) * weights[rows, which, None])
        share = functional.one_hot(chosen, len(self.experts)).float().mean((0, 1))
        self.auxiliary = self.balance * len(self.experts) * (share * scores.mean(0)).sum()
        return out.reshape_as(x)


class Language(nn.Module):
    def __init__(self, width=32, layers=2, dropout=0.0, positions=None, tied=False, mixture=False, scale=1.0):
        super().__init__()
        self.embed, self.place = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        nn.init.normal_(self.embed.weight, std=0.3)
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            forward = Mixture(width) if mixture else nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))
            self.blocks.append(nn.ModuleDict({"n1": nn.LayerNorm(width), "attention": Attention(width, positions), "n2": nn.LayerNorm(width), "mlp": forward}))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.mixture = mixture

    def hidden(self, words):
        x = self.embed(words) + self.place(torch.arange(words.shape[1]))
        for block in self.blocks:
            x = x + block["attention"](block["n1"](x))
            x = x + block["mlp"](block["n2"](x))
        return self.norm(x)

    def forward(self, words):
        logits = self.head(self.hidden(words[:, :-1]))
        loss = functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
        return loss + sum(block["mlp"].auxiliary for block in self.blocks) if self.mixture else loss


# ---- data --------------------------------------------------------------------------------------------


class Data:
    """Batches without end. `noise`: the share of labels that are random."""

    def __init__(self, kind, rows, noise=0.1):
        self.rows, self.noise = rows, noise
        self.random = torch.Generator().manual_seed(7)
        self.make = getattr(self, kind)
        self.centres = torch.randn(CLASSES, 16, generator=self.random)
        self.patterns = torch.randn(CLASSES, 1, 10, 10, generator=self.random)
        self.next_word = torch.randint(0, WORDS, (WORDS, 3), generator=self.random)

    def __call__(self):
        return self.make()

    def _labels(self):
        return torch.randint(0, CLASSES, (self.rows,), generator=self.random)

    def points(self):
        y = self._labels()
        x = self.centres[y] + 1.2 * torch.randn(self.rows, 16, generator=self.random)
        wrong = torch.rand(self.rows, generator=self.random) < self.noise
        return x, torch.where(wrong, self._labels(), y)

    def images(self):
        y = self._labels()
        return self.patterns[y] + 1.5 * torch.randn(self.rows, 1, 10, 10, generator=self.random), y

    def numbers(self):
        x = torch.randn(self.rows, 16, generator=self.random)
        return x, x[:, :4].sum(1).sin() + 0.3 * torch.randn(self.rows, generator=self.random)

    def text(self):
        words = [torch.randint(0, WORDS, (self.rows,), generator=self.random)]
        for _ in range(LENGTH):
            follows = self.next_word[words[-1], torch.randint(0, 3, (self.rows,), generator=self.random)]
            any_word = torch.randint(0, WORDS, (self.rows,), generator=self.random)
            words.append(torch.where(torch.rand(self.rows, generator=self.random) < self.noise, any_word, follows))
        return torch.stack(words, 1)


# name: (the model, its data, a rate that suits Adam)
KINDS = {
    "classifier": (Classifier, "points", 3e-3),
    "dropout": (lambda: Classifier(dropout=0.2), "points", 3e-3),
    "batch_norm": (lambda: Classifier(norm="batch"), "points", 3e-3),
    "images": (Images, "images", 3e-3),
    "regression": (Regression, "numbers", 3e-3),
    "autoencoder": (Autoencoder, "points", 3e-3),
    "recurrent": (Recurrent, "text", 3e-3),
    "language": (Language, "text", 2e-3),
    "language_dropout": (lambda: Language(dropout=0.1), "text", 2e-3),
    "mixture": (lambda: Language(mixture=True), "text", 2e-3),
}


class Trainer:
    """What a user writes. A recipe or a fault overrides a part."""

    steps, rows, micro, clip, clear, noise = 150, 16, 1, None, True, 0.1

    def __init__(self, kind):
        self.kind = kind
        make, data, self.rate = KINDS[kind]
        self.model = self.build(make)
        self.data = Data(data, self.rows, self.noise)
        self.optimizer = self.optimize()
        self.schedule = self.scheduled()
        self.losses, self.step = [], 0

    def build(self, make):
        return make()

    def parameters(self):
        return [p for p in self.model.parameters() if p.requires_grad]

    def optimize(self):
        return torch.optim.AdamW(self.parameters(), lr=self.rate)

    def scheduled(self):
        return None

    def watch(self, run):
        run.watch(self.model, self.optimizer)

    def context(self):
        return contextlib.nullcontext()

    def loss(self, batch):
        with self.context():
            return self.model(batch)

    def backward(self, loss):
        (loss / self.micro).backward()

    def before_update(self):
        if self.clip:
            nn.utils.clip_grad_norm_(self.parameters(), self.clip)

    def update(self):
        self.optimizer.step()

    def after_update(self):
        pass

    def one_step(self):
        for _ in range(self.micro):
            loss = self.loss(self.data())
            self.backward(loss)
        self.before_update()
        self.update()
        if self.schedule is not None:
            self.schedule.step()
        if self.clear:
            self.optimizer.zero_grad()
        self.after_update()
        self.losses.append(loss.detach())

    def before_step(self):
        pass

    def train(self, run):
        self.run = run
        self.watch(run)
        for self.step in range(self.steps):
            self.before_step()
            self.one_step()
        return self.losses, self.model.state_dict()


def average_of(model, dtype=None):
    average = copy.deepcopy(model).requires_grad_(False)
    return average if dtype is None else average.to(dtype)
