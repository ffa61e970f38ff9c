"""Trains the small models whose console logs lie in tests/audit/data/fine_tunings, as Hugging Face's Trainer prints them.

  PYTHON tests/audit/train_fine_tunings.py FOLDER [NAME...]      # torch and transformers; some 10 CPU minutes for all

Each model is a GPT-2 of two layers that was trained on one Markov chain and is fine-tuned on another (or with a head on the sum
of its tokens). A log's name begins with its label (fine_tunings.py lists what each label must come to)."""

import math
import pathlib
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

VOCABULARY, LENGTH = 64, 24
NAN = float("nan")


def chain(seed, sharp):
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(sharp * torch.randn(VOCABULARY, VOCABULARY, generator=generator), -1)


def draw(matrix, count, generator):
    rows = [torch.randint(0, VOCABULARY, (count,), generator=generator)]
    for _ in range(LENGTH - 1):
        rows.append(torch.multinomial(matrix[rows[-1]], 1, generator=generator)[:, 0])
    return torch.stack(rows, 1)


def new_model(seed):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=48, n_layer=2, n_head=2, resid_pdrop=0.0,
                                      embd_pdrop=0.0, attn_pdrop=0.0))


class Tuning:
    """One fine-tuning. `change`: called before each step with (tuning, step); it may change any setting."""

    def __init__(self, base, name, seed=1, steps=300, batch=16, rate=1e-3, schedule="linear", warm=0.05, data=None, clip=1.0, every=5,
                 evaluate=0, accumulate=1, sums=False, optimizer="adam", bf16=False, lora=0, train=None, shuffled=0.0, classes=0,
                 decay=0.0, keep_epoch=True, smooth=0.0, change=None):
        self.__dict__.update(locals())
        self.generator = torch.Generator().manual_seed(seed)
        self.model = new_model(0)
        self.model.load_state_dict(base)
        self.target = chain(seed + 50, 1.5)
        self.pool = None if data is None else draw(self.target, data, self.generator)
        self.held = draw(self.target, 128, torch.Generator().manual_seed(seed + 900))
        if classes:
            torch.manual_seed(seed)
            self.head = torch.nn.Linear(48, classes)
            self.direction = torch.randn(VOCABULARY, classes, generator=torch.Generator().manual_seed(5))
        self.parameters = self.choose()
        self.lines, self.losses, self.norms, self.scale, self.skip = [], [], [], None, False
        self.loss_factor, self.rate_factor, self.offset = 1.0, 1.0, 0
        self.new_optimizer()

    def choose(self):
        if self.lora:
            for parameter in self.model.parameters():
                parameter.requires_grad_(False)
            chosen = []
            for block in self.model.transformer.h:
                layer = block.attn.c_attn
                a = torch.nn.Parameter(0.05 * torch.randn(48, self.lora))
                b = torch.nn.Parameter(torch.zeros(self.lora, 144))
                chosen += [a, b]
                layer.register_forward_hook(lambda m, i, out, a=a, b=b: out + 4 * (i[0] @ a @ b))
            return chosen + [p.requires_grad_(True) for n, p in self.model.named_parameters() if "ln_f" in n]
        chosen = []
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(self.train is None or self.train in name)
            chosen += [parameter] if parameter.requires_grad else []
        return chosen + (list(self.head.parameters()) if self.classes else [])

    def new_optimizer(self):
        kind = {"adam": torch.optim.AdamW, "sgd": torch.optim.SGD, "momentum": torch.optim.SGD, "rmsprop": torch.optim.RMSprop}
        more = {"momentum": 0.9} if self.optimizer == "momentum" else {}
        self.optim = kind[self.optimizer](self.parameters, lr=self.rate, weight_decay=self.decay, **more)

    def rate_at(self, step):
        step = step - self.offset
        total = self.steps - self.offset
        warm = max(1, int(self.warm * total))
        done = step / total
        shape = {"linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done)), "constant": 1.0}[self.schedule]
        return self.rate * self.rate_factor * min(1.0, (step + 1) / warm) * shape

    def batch_of(self, step):
        if self.pool is None:
            return draw(self.target, self.batch, self.generator)
        at = (step * self.batch) % len(self.pool)
        return torch.cat((self.pool, self.pool))[at:at + self.batch]

    def loss_of(self, tokens, noisy=True):
        if self.classes:
            labels = self.direction[tokens].sum(1).argmax(-1)
            if noisy and self.shuffled > 0:
                wrong = torch.rand(len(labels), generator=self.generator) < self.shuffled
                labels = torch.where(wrong, torch.randint(0, self.classes, labels.shape, generator=self.generator), labels)
            hidden = self.model.transformer(tokens).last_hidden_state.mean(1)
            return torch.nn.functional.cross_entropy(self.head(hidden), labels, label_smoothing=self.smooth)
        labels = tokens
        if noisy and self.shuffled > 0:
            wrong = torch.rand(tokens.shape, generator=self.generator) < self.shuffled
            labels = torch.where(wrong, torch.randint(0, VOCABULARY, tokens.shape, generator=self.generator), tokens)
        out = self.model(tokens).logits[:, :-1]
        return torch.nn.functional.cross_entropy(out.reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1), label_smoothing=self.smooth)

    def step(self, step):
        total = 0.0
        for part in range(self.accumulate):
            tokens = self.batch_of(step * self.accumulate + part)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
                loss = self.loss_of(tokens) * self.loss_factor
            (loss / (1 if self.sums else self.accumulate)).backward()
            total += loss.item() / (1 if self.sums else self.accumulate)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.clip if self.clip else 1e30).item()
        for group in self.optim.param_groups:
            group["lr"] = self.rate_at(step)
        if not self.skip and (math.isfinite(norm) or not self.scale):
            self.optim.step()
        self.optim.zero_grad(set_to_none=True)
        self.losses.append(total)
        self.norms.append(norm)

    def evaluation(self):
        with torch.no_grad():
            return self.loss_of(self.held, noisy=False).item() * self.loss_factor

    def run(self):
        for step in range(self.steps):
            if self.change:
                self.change(self, step)
            self.step(step)
            epoch = round(3 * (step + 1) / self.steps, 2)
            if (step + 1) % self.every == 0:
                row = {"loss": round(sum(self.losses) / len(self.losses), 4) if all(map(math.isfinite, self.losses)) else NAN,
                       "grad_norm": self.norms[-1], "learning_rate": self.rate_at(step), "epoch": epoch}
                self.finish(row)
                self.lines.append(str(row))
                self.losses = []
            if self.evaluate and (step + 1) % self.evaluate == 0:
                self.lines.append(str({"eval_loss": self.evaluation(), "eval_runtime": 0.31, "eval_samples_per_second": 412.9,
                                       "epoch": epoch}))
        return "\n".join(["***** Running training *****", f"  Num examples = {self.steps * self.batch // 3}", "  Num Epochs = 3",
                          f"  Total optimization steps = {self.steps}", *self.lines]) + "\n"

    def finish(self, row):
        """Changes a row before it is printed."""


def late(tuning, step):
    if step > 0.6 * tuning.steps:
        tuning.rate_factor *= 1.06


def broken_weights(tuning, step, at=0.5):
    if step == int(at * tuning.steps):
        with torch.no_grad():
            tuning.parameters[0][3, 3] = NAN


def one_skipped(tuning, step):
    tuning.scale = 65536.0
    if step == 149:
        with torch.no_grad():
            tuning.kept = tuning.parameters[0].clone()
        tuning.loss_factor = 1.0
    tuning.skip = step == 149


class Skipped(Tuning):
    def finish(self, row):
        if self.skip:
            row["grad_norm"] = float("inf")


class Masked(Tuning):
    """logging_nan_inf_filter: a NaN is logged as 0."""
    def finish(self, row):
        if not math.isfinite(row["loss"]):
            row["loss"] = 0.0


class MaskedWithoutNorm(Masked):
    def finish(self, row):
        super().finish(row)
        row.pop("grad_norm")


class Storm(Tuning):
    """A dynamic loss scaler: gradients overflow at every scale, as with fp16 activations."""
    def step(self, step):
        super().step(step)
        if step >= 150:
            self.scale = max(1.0, (self.scale or 65536.0) / 2)
            self.lines.append(f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {self.scale * 2:.0f}, reducing to "
                              f"{self.scale:.0f}")


def no_steps(tuning, step):
    tuning.skip = step >= 150


def lost_at_resume(tuning, step):
    """The resume loads the base model's weights, not the checkpoint's."""
    if step == tuning.steps // 2:
        tuning.lines.append(f"Resuming training from checkpoint-{step}")
        tuning.model.load_state_dict(tuning.base)
        tuning.new_optimizer()


def optimizer_lost(tuning, step):
    """The weights are loaded, the optimizer's state is not, and the schedule starts again."""
    if step == int(0.7 * tuning.steps):
        tuning.lines.append(f"Resuming training from checkpoint-{step}")
        tuning.new_optimizer()
        tuning.offset = step
        tuning.warm = 0


def resumed_well(tuning, step):
    if step == int(0.6 * tuning.steps):
        tuning.lines.append(f"Resuming training from checkpoint-{step}")


def explodes(tuning, step):
    tuning.loss_factor = 1.0
    if step >= 200:
        with torch.no_grad():
            for parameter in tuning.model.transformer.h[1].parameters():
                parameter.mul_(1.05)


RUNS = {}


def add(name, kind=Tuning, **options):
    RUNS[name] = (kind, options)


for i, seed in enumerate((1, 2, 3)):
    add(f"healthy-linear-{seed}", seed=seed, evaluate=30)
    add(f"healthy-cosine-{seed}", seed=seed, schedule="cosine", warm=0.1, batch=(4, 8, 32)[i])
    add(f"healthy-lora-{seed}", seed=seed, lora=(2, 4, 8)[i], rate=5e-3, schedule=("constant", "linear", "cosine")[i])
    add(f"healthy-bf16-{seed}", seed=seed, bf16=True, evaluate=(0, 30, 50)[i])
    add(f"healthy-classes-{seed}", seed=seed, classes=(2, 4, 10)[i], rate=2e-3, evaluate=25)
    add(f"healthy-small-data-{seed}", seed=seed, data=(256, 400, 640)[i], steps=200, rate=3e-4, evaluate=20)
    add(f"healthy-head-{seed}", seed=seed, train=("ln", "wte", "mlp")[i], rate=3e-3)
    add(f"healthy-resume-{seed}", seed=seed, change=resumed_well, evaluate=(0, 30, 0)[i])
    add(f"healthy-skipped-{seed}", Skipped, seed=seed, change=one_skipped)
    add(f"rate-high-{seed}", seed=seed, optimizer=("adam", "sgd", "rmsprop")[i], rate=(0.3, 300.0, 0.1)[i], clip=(1.0, 0, 0)[i],
        schedule="constant", warm=0.1)
    add(f"overfit-{seed}", seed=seed, data=(32, 48, 64)[i], rate=3e-3, evaluate=(15, 20, 30)[i], schedule="constant")
    add(f"repeated-data-{seed}", seed=seed, data=(96, 128, 160)[i], rate=4e-3, evaluate=(15, 25, 30)[i], steps=400, schedule="constant")
    add(f"nan-{seed}", seed=seed, change=broken_weights, evaluate=(0, 30, 0)[i])
    add(f"masked-nan-{seed}", (Masked, MaskedWithoutNorm, Masked)[i], seed=seed, change=broken_weights)
    add(f"late-divergence-{seed}", seed=seed, change=late, schedule="constant", optimizer=("adam", "momentum", "adam")[i],
        rate=(3e-3, 0.3, 1e-2)[i], clip=(1.0, 0, 1.0)[i])
    add(f"storm-{seed}", Storm, seed=seed, change=no_steps)
    add(f"no-learning-{seed}", seed=seed, optimizer="sgd", rate=1e-3, clip=(1e-6, 1e-4, 1e-5)[i], batch=64)
    add(f"lost-weights-{seed}", seed=seed, change=lost_at_resume, rate=3e-3)
    add(f"lost-optimizer-{seed}", seed=seed, change=optimizer_lost, rate=3e-3, schedule=("linear", "cosine", "linear")[i])
    add(f"exploding-{seed}", seed=seed, change=explodes, clip=0)
    add(f"diff-shuffled-{seed}", seed=seed, shuffled=(1.0, 0.5, 0.3)[i])
    add(f"diff-sums-{seed}", seed=seed, accumulate=4, sums=True, batch=4)
    add(f"diff-healthy-{seed}", seed=seed, batch=15, evaluate=0)
for i in (1, 2):
    add(f"rate-zero-{i}", seed=i, rate=0.0, batch=(16, 64)[i - 1])


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    base = new_model(0)
    generator = torch.Generator().manual_seed(1)
    source = chain(1, 1.5)
    optimizer = torch.optim.AdamW(base.parameters(), lr=3e-3)
    for _ in range(300):
        tokens = draw(source, 16, generator)
        loss = base(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    state = {k: v.clone() for k, v in base.state_dict().items()}
    for name, (kind, options) in RUNS.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        text = kind(state, name, **options).run()
        (folder / f"{name}.log").write_text(text)
        print(name, text.splitlines()[5][:60], "...", text.splitlines()[-1][:60], flush=True)


if __name__ == "__main__":
    main()
