"""About 2,000 inputs of scalars, the same on every machine: the families of verdict_families.py, long healthy and
faulty curves in five formats (two of them with event files' bytes), and runs of several series."""

import math
import random
import struct

import verdict_families
from log_writers import Names, assignments, csv, json_lines, words

# ---- event files of TensorBoard ----

TABLE = []
for number in range(256):
    for _ in range(8):
        number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
    TABLE.append(number)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def record(event):
    head = struct.pack("<Q", len(event))
    return head + struct.pack("<I", masked_crc(head)) + event + struct.pack("<I", masked_crc(event))


def events(rows, names, _digits):
    """An event file in the format of SummaryWriter.add_scalar."""
    out = record(b"\x09" + struct.pack("<d", 1.7e9) + field(3, b"brain.Event:2"))
    for i, row in enumerate(rows):
        for name, value in names.named(row).items():
            summary = field(1, field(1, name.encode()) + b"\x15" + struct.pack("<f", value))
            out += record(b"\x09" + struct.pack("<d", 1.7e9 + i) + b"\x10" + varint(row["step"]) + field(5, summary))
    return "events.out.tfevents.1700000000.host", out


WRITERS = (json_lines, csv, words, assignments, events)

# ---- long curves ----


def power(i, n, r):
    return 2.2 + 5 * (i + 10) ** -0.35


def restarts(i, n, r):
    return power(i, n, r) * (1 + 0.15 * math.exp(-(i % (n // 4 + 1)) / 20) * (i > n // 4))


def plateau(i, n, r):
    return 1.2 if i > n // 2 else 1.2 + 2 * (1 - 2 * i / n)


def to_zero(i, n, r):
    return 2 * math.exp(-12 * i / n)


def hump(i, n, r):
    return power(i, n, r) * (1 + 0.08 * math.exp(-((i - n / 20) / (n / 60)) ** 2))


def steps(i, n, r):
    return (1.8, 1.2, 0.9, 0.75)[min(3, 4 * i // n)]


def spike(i, n, r):
    return power(i, n, r) * (2.5 if 0 <= i - int(0.6 * n) < 6 else 1)


def shift(i, n, r):
    return power(i, n, r) * (1.8 if i > 0.6 * n else 1)


def diverges(i, n, r):
    return power(i, n, r) * math.exp(max(0, 6 * (i / n - 0.7)))


def drifts(i, n, r):
    return power(i, n, r) * (1 + max(0, i / n - 0.4))


def flat(i, n, r):
    return math.log(10)


def lost(i, n, r):
    return math.nan if i >= int(0.7 * n) else power(i, n, r)


SHAPES = (power, restarts, plateau, to_zero, hump, steps, spike, shift, diverges, drifts, flat, lost)


def curves(seed):
    for at, shape in enumerate(SHAPES):
        rand = random.Random(seed * 1009 + at)
        points = rand.choice((80, 300, 1200))
        noise = rand.choice((0.003, 0.02, 0.08))
        rows = []
        for i in range(points):
            value = shape(i, points, rand)
            row = {"step": 10 * i, "loss": value * math.exp(noise * rand.gauss(0, 1)) if value > 0 else value,
                   "rate": 3e-4 * min(1, (i + 1) / 20) * (1 - 0.9 * i / points), "norm": 1.3 * math.exp(0.2 * rand.gauss(0, 1))}
            rows.append(row)
        writer = rand.choice(WRITERS)
        name, text = writer(rows, Names("train/loss", "train/grad_norm", "train/lr"), 9)
        yield f"curve {shape.__name__}", {name: text}


# ---- several series ----

SETS = (("loss", "loss_cls", "loss_bbox", "loss_rpn_cls"), ("total_loss", "ce_loss", "z_loss", "aux_loss"), ("loss", "mtp_loss"),
        ("d_loss", "g_loss"), ("policy_loss", "value_loss", "entropy"), ("loss", "accuracy", "tokens_per_second"),
        ("train_loss", "l_pix"), ("loss", "return", "epsilon"), ("elbo", "kl"), ("box_loss", "cls_loss", "dfl_loss"))


def several(seed):
    for at, series in enumerate(SETS):
        for fault in ("none", "all diverge", "all NaN", "the last NaN"):
            rand = random.Random(seed * 2003 + at)
            writer = rand.choice(WRITERS)
            rows = []
            for i in range(150):
                row = {"step": i}
                for place, name in enumerate(series):
                    value = (2.0 - 0.3 * place) * (0.4 + 0.6 * math.exp(-i / 30)) * math.exp(0.02 * rand.gauss(0, 1))
                    if fault == "all diverge" and i > 90:
                        value *= 1 + 0.06 * (i - 90)
                    if i > 100 and (fault == "all NaN" or (fault == "the last NaN" and place == len(series) - 1)):
                        value = math.nan
                    row[name] = value
                rows.append(row)
            name, text = writer(rows, Names(), 9)
            yield f"series {series[0]}, {series[-1]}: {fault}", {name: text}


def inputs(seeds):
    """(family, files): file name -> text or bytes."""
    for case in verdict_families.cases(seeds):
        yield f"{case.family}: {case.name}", case.files
    for seed in seeds:
        yield from curves(seed)
        yield from several(seed)
