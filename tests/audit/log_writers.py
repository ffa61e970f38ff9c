"""Writers of the same rows as different trainers print them. A row is a dictionary with `step` and any of `loss`, `norm`, `rate`,
`scale`, `skipped` and `eval`; a writer leaves out what its trainer does not print and returns the file's name and text."""

import json
import math


def number(value, digits):
    """As printf's %.*g, with Python's spelling of NaN and infinity."""
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return repr(value)
    return repr(float(f"{value:.{digits}g}"))


class Names:
    """What a log calls its series."""

    def __init__(self, loss="loss", norm="grad_norm", rate="lr", scale="loss_scale", skipped="skipped_steps", evaluation="val_loss"):
        self.of = {"loss": loss, "norm": norm, "rate": rate, "scale": scale, "skipped": skipped, "eval": evaluation}

    def named(self, row):
        return {self.of.get(key, key): value for key, value in row.items() if key != "step"}


def as_json(value, digits):
    text = number(value, digits)
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text)


def json_lines(rows, names, digits):
    lines = []
    for row in rows:
        fields = ", ".join(f'"{k}": {as_json(v, digits)}' for k, v in names.named(row).items())
        lines.append(f'{{"step": {row["step"]}, {fields}}}')
    return "log.jsonl", "\n".join(lines) + "\n"


def csv(rows, names, digits):
    columns = []
    for row in rows:
        columns += [c for c in names.named(row) if c not in columns]
    lines = [",".join(["step", *columns])]
    for row in rows:
        named = names.named(row)
        lines.append(",".join([str(row["step"])] + [number(named[c], digits) if c in named else "" for c in columns]))
    return "metrics.csv", "\n".join(lines) + "\n"


def words(rows, names, digits):
    lines = [" ".join([f"step {row['step']}"] + [f"{k} {number(v, digits)}" for k, v in names.named(row).items()]) for row in rows]
    return "train.log", "\n".join(lines) + "\n"


def assignments(rows, names, digits):
    lines = [" ".join([f"step={row['step']}"] + [f"{k.replace(' ', '_')}={number(v, digits)}" for k, v in names.named(row).items()])
             for row in rows]
    return "train.log", "\n".join(lines) + "\n"


def stamped(rows, names, digits):
    lines = []
    for i, row in enumerate(rows):
        values = " | ".join(f"{k}: {number(v, digits)}" for k, v in names.named(row).items())
        lines.append(f"2024-05-14 03:{i // 60 % 60:02d}:{i % 60:02d},412 INFO [train.py:88] step: {row['step']} | {values}")
    return "train.log", "\n".join(lines) + "\n"


HF = Names(norm="grad_norm", rate="learning_rate", evaluation="eval_loss")


def hugging_face(rows, _names, digits):
    """The console of transformers' Trainer: dictionaries without a step, an evaluation's on a line of its own."""
    lines = ["***** Running training *****", "  Num Epochs = 3", f"  Total optimization steps = {rows[-1]['step']}"]
    for row in rows:
        epoch = 3 * row["step"] / rows[-1]["step"]
        named = HF.named({k: v for k, v in row.items() if k != "eval"})
        if named:
            lines.append("{" + ", ".join(f"'{k}': {number(v, digits)}" for k, v in named.items()) + f", 'epoch': {epoch:.2f}}}")
        if "eval" in row:
            lines.append(f"{{'eval_loss': {number(row['eval'], digits)}, 'eval_runtime': 12.3, 'epoch': {epoch:.2f}}}")
    return "console.log", "\n".join(lines) + "\n"


def trainer_state(rows, _names, digits):
    history = []
    for row in rows:
        named = HF.named({k: v for k, v in row.items() if k != "eval"})
        epoch = 3 * row["step"] / rows[-1]["step"]
        if named:
            history.append(", ".join(f'"{k}": {as_json(v, digits)}' for k, v in named.items()) + f', "epoch": {epoch:.3f}, "step": {row["step"]}')
        if "eval" in row:
            history.append(f'"eval_loss": {as_json(row["eval"], digits)}, "epoch": {epoch:.3f}, "step": {row["step"]}')
    head = json.dumps({"best_metric": None, "epoch": 3.0, "global_step": rows[-1]["step"]})[:-1]
    return "trainer_state.json", head + ', "log_history": [' + ", ".join("{" + h + "}" for h in history) + "]}\n"


def megatron(rows, _names, digits):
    lines = []
    for row in rows:
        parts = [f" iteration {row['step']:8d}/ {rows[-1]['step']:8d}", " consumed samples: 256", " elapsed time per iteration (ms): 512.3"]
        if "rate" in row:
            parts.append(f" learning rate: {row['rate']:.{digits - 1}E}")
        if "loss" in row:
            parts.append(f" lm loss: {row['loss']:.6E}")
        parts.append(f" loss scale: {row.get('scale', 1.0):.1f}")
        if "norm" in row:
            parts.append(f" grad norm: {row['norm']:.3f}")
        parts += [f" number of skipped iterations: {row.get('skipped', 0):3d}", " number of nan iterations:   0 "]
        lines.append("[2024-05-14 03:22:10] " + " |".join(parts) + "|")
        if "eval" in row:
            lines.append(f" validation loss at iteration {row['step']} | lm loss value: {row['eval']:.6E} | lm loss PPL: "
                         f"{math.exp(min(row['eval'], 600)) if math.isfinite(row['eval']) else row['eval']:.6E} | ")
    return "megatron.log", "\n".join(lines) + "\n"


ANY_NAME = (json_lines, csv, words, assignments, stamped)
OWN_NAMES = (hugging_face, trainer_state, megatron)
LOSSES = ("loss", "train_loss", "train/loss", "lm_loss", "training_loss", "Loss/train", "total_loss")
NORMS = ("grad_norm", "gnorm", "norm", "grad_norm/total", "total_norm", "train/grad_norm", "gradient_norm")
RATES = ("lr", "learning_rate", "train/lr", "lr-AdamW", "optim/lr")
SCALES = ("loss_scale", "loss scale", "scale", "grad_scale", "amp_scale")
EVALUATIONS = ("val_loss", "eval_loss", "eval/loss", "validation_loss", "val/loss", "test_loss")


def draw(random, own=True):
    """A writer, names and digits."""
    writer = random.choice(ANY_NAME + (OWN_NAMES if own else ()))
    names = Names(random.choice(LOSSES), random.choice(NORMS), random.choice(RATES), random.choice(SCALES), "skipped_steps",
                  random.choice(EVALUATIONS))
    return writer, names, random.choice((5, 6, 9, 16))
