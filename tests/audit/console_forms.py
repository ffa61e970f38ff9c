"""Runs with known losses, and the forms in which programs print them. A form has a name, a row format, the series of
its loss, and the step of each row. console_forms_tools.py has the forms of public programs, console_forms_hand.py those
that people write, console_forms_copied.py those that are copied, exported or printed as a whole."""

import math
import random

NAN = float("nan")
ROWS = 120
ROWS_OF_AN_EPOCH = 20
FAULT_AT = 84  # row


class Run:
    """A training of ROWS rows. `fault`: None, "nan" (one loss and norm) or "spike" (of eight rows)."""

    def __init__(self, seed=61, fault=None):
        rng = random.Random(seed)
        self.rng = rng
        self.loss, self.val, self.norm, self.rate, self.accuracy = [], [], [], [], []
        for i in range(ROWS):
            left = 0.8 * math.exp(-7 * i / ROWS) + 0.2 * (1 - i / ROWS)
            self.loss.append((0.35 + 1.95 * left) * math.exp(0.04 * rng.gauss(0, 1)))
            self.val.append((0.37 + 1.95 * left) * math.exp(0.02 * rng.gauss(0, 1)))
            self.norm.append((0.4 + 2 * left) * math.exp(0.12 * rng.gauss(0, 1)))
            self.rate.append(3e-4 * (1 - 0.9 * i / ROWS))
            self.accuracy.append(min(0.99, 0.1 + 0.8 * (1 - left)))
        if fault == "nan":
            self.loss[FAULT_AT] = self.norm[FAULT_AT] = NAN
        if fault == "spike":
            for j in range(8):
                self.loss[FAULT_AT + j] *= 1 + 2.6 * math.exp(-j / 3)


class Form:
    def __init__(self, row, loss, step, file, head, judged):
        self.row, self.loss, self.step, self.file, self.head, self.judged = row, loss, step, file, head, judged

    def text(self, run):
        text = self.head + "".join(self.row(run, i) for i in range(ROWS))
        return text if text.endswith("\n") else text + "\n"


class WholeForm(Form):
    """A text that is not made of rows: `row(run)` is all of it."""

    def text(self, run):
        return self.row(run)


class Forms(dict):
    def add(self, name, row, step, loss="loss", file="train.log", head="", judged=True, end="\n"):
        """`row(run, i)` is printed, followed by `end`. judged: False if the loss is one side of a game, which has no
        spikes."""
        assert name not in self, name
        self[name] = Form(lambda run, i: row(run, i) + end, loss, step, file, head, judged)

    def whole(self, name, text, step, loss="loss", file="train.log", judged=True):
        assert name not in self, name
        self[name] = WholeForm(text, loss, step, file, "", judged)


def each(distance=1, first=1):
    """Steps that continue over epochs."""
    return lambda i: (i + first) * distance


def batches(distance=1, of_epoch=None):
    """Steps that start again in each epoch, counted continuously."""
    length = of_epoch if of_epoch is not None else ROWS_OF_AN_EPOCH * distance
    return lambda i: i // ROWS_OF_AN_EPOCH * length + (i % ROWS_OF_AN_EPOCH + 1) * distance


def batches_from_0(distance=1, of_epoch=None):
    length = of_epoch if of_epoch is not None else ROWS_OF_AN_EPOCH * distance
    return lambda i: i // ROWS_OF_AN_EPOCH * length + i % ROWS_OF_AN_EPOCH * distance


def epoch(i):
    """The epoch of row i, from 0."""
    return i // ROWS_OF_AN_EPOCH


def batch(i):
    """The batch within the epoch, from 0."""
    return i % ROWS_OF_AN_EPOCH


def bar(i, description="", inside=""):
    """A tqdm bar at row i."""
    share = (i + 1) / ROWS
    return (f"{description}{100 * share:3.0f}%|{'█' * int(10 * share):<10}| {i + 1}/{ROWS} "
            f"[00:{i % 60:02d}<01:02,  1.23it/s{', ' if inside else ''}{inside}]")


def time(i):
    return f"2024-05-14 {3 + i // 60:02d}:{i % 60:02d}:10"


def fancy_grid(values, of_row):
    """tabulate's fancy_grid: pairs of a name and a value, `of_row` in a row, sorted down the columns."""
    cells = [(name, f"{value:.4e}") for name, value in values.items()]
    height = -(-len(cells) // of_row)
    rows = [[text for pair in cells[at::height] for text in pair] for at in range(height)]
    columns = max(map(len, rows))
    rows = [row + [""] * (columns - len(row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]

    def rule(left, inner, right, sign):
        return left + inner.join(sign * (width + 2) for width in widths) + right

    lines = ["\u2502" + "\u2502".join(f" {text:<{width}} " for text, width in zip(row, widths)) + "\u2502" for row in rows]
    between = "\n" + rule("\u251c", "\u253c", "\u2524", "\u2500") + "\n"
    return rule("\u2552", "\u2564", "\u2555", "\u2550") + "\n" + between.join(lines) + "\n" + rule("\u2558", "\u2567", "\u255b", "\u2550")
