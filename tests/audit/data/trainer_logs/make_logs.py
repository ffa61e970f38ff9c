#!/usr/bin/env python3
"""A small real trainer that prints as known trainers do, and what it printed as points.

    python3 make_logs.py     # writes the files of this folder

A two-layer network learns a noisy function by Adam; once a mixed-precision step overflows and is
skipped. points.json holds, for each file, [step, series, value] as they were printed.
"""
import csv
import json
import math
import os

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 120
EVERY_VALIDATION = 40


def train():
    """Yields (step, loss, gradient norm, rate, validation loss or None, skipped)."""
    rng = np.random.default_rng(7)
    teacher = rng.normal(size=(16, 4))

    def batch(n):
        x = rng.normal(size=(n, 16))
        return x, np.tanh(x @ teacher) + 0.1 * rng.normal(size=(n, 4))

    held_out = batch(512)
    weights = [rng.normal(size=(16, 64)) / 4, rng.normal(size=(64, 4)) / 8]
    moments = [[np.zeros_like(w), np.zeros_like(w)] for w in weights]
    scale = 65536.0
    for step in range(1, STEPS + 1):
        rate = 1e-2 * min(1.0, step / 10) * (0.5 + 0.5 * math.cos(math.pi * step / STEPS))
        x, y = batch(64)
        hidden = np.maximum(x @ weights[0], 0)
        error = hidden @ weights[1] - y
        loss = float((error**2).mean())
        upstream = 2 * error / error.size
        grads = [x.T @ ((upstream @ weights[1].T) * (hidden > 0)), hidden.T @ upstream]
        norm = math.sqrt(sum(float((g**2).sum()) for g in grads))
        skipped = step == 57  # as if the scaled gradients had overflowed
        if skipped:
            scale /= 2
        else:
            for w, g, m in zip(weights, grads, moments):
                m[0] += 0.1 * (g - m[0])
                m[1] += 0.01 * (g * g - m[1])
                w -= rate * m[0] / (1 - 0.9**step) / (np.sqrt(m[1] / (1 - 0.99**step)) + 1e-8)
        validation = None
        if step % EVERY_VALIDATION == 0:
            hx, hy = held_out
            validation = float(((np.maximum(hx @ weights[0], 0) @ weights[1] - hy) ** 2).mean())
        yield step, loss, norm, rate, validation, skipped, scale


def megatron(rows, out, points):
    out.write("using world size: 1, data-parallel-size: 1 ...\n")
    out.write("------------------------ arguments ------------------------\n")
    out.write("  lr ................................... 0.01\n")
    out.write("  train_iters .......................... 120\n")
    out.write("-------------------- end of arguments ---------------------\n")
    for step, loss, norm, rate, validation, skipped, scale in rows:
        line = f" [2024-05-02 10:00:{step % 60:02d}] iteration {step:8d}/{STEPS:8d} |"
        line += f" consumed samples: {64 * step:12d} |"
        line += f" elapsed time per iteration (ms): {11.5:.1f} |"
        line += f" learning rate: {rate:.6E} | global batch size: {64:5d} |"
        points.append([step, "consumed samples", 64 * step])
        points.append([step, "elapsed time per iteration", 11.5e-3])
        points.append([step, "learning rate", float(f"{rate:.6E}")])
        points.append([step, "global batch size", 64])
        if not skipped:
            line += f" lm loss: {loss:.6E} |"
            points.append([step, "lm loss", float(f"{loss:.6E}")])
        line += f" loss scale: {scale:.1f} |"
        points.append([step, "loss scale", scale])
        if not skipped:
            line += f" grad norm: {norm:.3f} |"
            points.append([step, "grad norm", float(f"{norm:.3f}")])
        line += f" number of skipped iterations: {int(skipped):3d} | number of nan iterations:   0 |"
        points.append([step, "number of skipped iterations", int(skipped)])
        points.append([step, "number of nan iterations", 0])
        out.write(line + "\n")
        if validation is not None:
            out.write("-" * 90 + "\n")
            out.write(f" validation loss at iteration {step} | lm loss value: {validation:.6E} |"
                      f" lm loss PPL: {math.exp(validation):.6E} |\n")
            out.write("-" * 90 + "\n")
            points.append([step, "val/lm loss value", float(f"{validation:.6E}")])
            points.append([step, "val/lm loss PPL", float(f"{math.exp(validation):.6E}")])


def nanogpt(rows, out, points):
    out.write("number of parameters: 0.00M\ntokens per iteration will be: 1,024\n")
    for step, loss, norm, rate, validation, skipped, scale in rows:
        if validation is not None:
            out.write(f"step {step}: train loss {loss:.4f}, val loss {validation:.4f}\n")
            out.write("saving checkpoint to out\n")
            points.append([step, "train loss", float(f"{loss:.4f}")])
            points.append([step, "val loss", float(f"{validation:.4f}")])
        out.write(f"iter {step}: loss {loss:.4f}, time {11.52:.2f}ms, mfu {3.25:.2f}%\n")
        points.append([step, "loss", float(f"{loss:.4f}")])
        points.append([step, "time", 11.52e-3])
        points.append([step, "mfu", 0.0325])


def hugging_face(rows, out, points):
    out.write("***** Running training *****\n  Num examples = 7,680\n  Total optimization steps = 120\n")
    for step, loss, norm, rate, validation, skipped, scale in rows:
        out.write(f"\r{100 * step // STEPS:3d}%|{'█' * (step // 12):<10}| {step}/{STEPS}"
                  f" [00:{step // 4:02d}<00:{30 - step // 4:02d}, 4.01it/s]")
        if step % 10 == 0:
            shown = {"loss": round(loss, 4), "grad_norm": float("nan") if skipped else norm,
                     "learning_rate": rate, "epoch": step / 60}
            out.write(f"\n{shown}\n")
            points += [[step, name, value] for name, value in shown.items()]
        if validation is not None:
            shown = {"eval_loss": validation, "eval_runtime": 0.01, "epoch": step / 60}
            out.write(f"{shown}\n")
            points += [[step, name, value] for name, value in shown.items()]


def torchtitan(rows, out, points):
    for step, loss, norm, rate, validation, skipped, scale in rows:
        out.write(f"[rank0]:[titan] 2024-05-02 10:00:{step % 60:02d},123 - root - INFO - "
                  f"\x1b[31mstep: {step:2d}  \x1b[32mloss: {loss:7.4f}  \x1b[38;2;180;60;0mgrad_norm: {norm:7.4f}  "
                  f"\x1b[38;2;54;234;195mmemory: {1.25:5.2f}GiB({1.58:.2f}%)  \x1b[34mtps: {4321:,}  "
                  f"\x1b[36mtflops: {1234.5:,.2f}  \x1b[35mmfu: {12.34:.2f}%\x1b[39m\n")
        points += [[step, "loss", float(f"{loss:.4f}")], [step, "grad_norm", float(f"{norm:.4f}")],
                   [step, "memory", 1.25 * 2**30], [step, "tps", 4321], [step, "tflops", 1234.5],
                   [step, "mfu", 0.1234]]


def key_value(rows, out, points):
    for step, loss, norm, rate, validation, skipped, scale in rows:
        out.write(f"step:{step}/{STEPS} train_loss:{loss:.4f} train_time:{12 * step}ms step_avg:{12.00:.2f}ms\n")
        points += [[step, "train_loss", float(f"{loss:.4f}")], [step, "train_time", 12 * step / 1000],
                   [step, "step_avg", 0.012]]
        if validation is not None:
            out.write(f"step:{step}/{STEPS} val_loss:{validation:.4f} train_time:{12 * step}ms step_avg:nanms\n")
            points += [[step, "val_loss", float(f"{validation:.4f}")], [step, "train_time", 12 * step / 1000],
                       [step, "step_avg", float("nan")]]


def lightning(rows, out, points):
    names = ["epoch", "grad_norm", "step", "train_loss", "val_loss"]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for step, loss, norm, rate, validation, skipped, scale in rows:
        row = {"epoch": step // 60, "step": step, "train_loss": loss, "grad_norm": norm}
        writer.writerow(row)
        points += [[step, name, row[name]] for name in names if name in row and name != "step"]
        if validation is not None:
            row = {"epoch": step // 60, "step": step, "val_loss": validation}
            writer.writerow(row)
            points += [[step, "epoch", step // 60], [step, "val_loss", validation]]


def json_lines(rows, out, points):
    for step, loss, norm, rate, validation, skipped, scale in rows:
        record = {"loss": loss, "optimizer": {"lr": rate, "grad_norm": float("nan") if skipped else norm},
                  "phase": "train", "step": step}
        out.write(json.dumps(record) + "\n")
        points += [[step, "loss", loss], [step, "optimizer/lr", rate],
                   [step, "optimizer/grad_norm", record["optimizer"]["grad_norm"]]]


def trainer_state(rows, out, points):
    history = []
    for step, loss, norm, rate, validation, skipped, scale in rows:
        if step % 10 == 0:
            entry = {"epoch": step / 60, "grad_norm": norm, "learning_rate": rate, "loss": loss, "step": step}
            history.append(entry)
            points += [[step, name, value] for name, value in entry.items() if name != "step"]
        if validation is not None:
            entry = {"epoch": step / 60, "eval_loss": validation, "step": step}
            history.append(entry)
            points += [[step, name, value] for name, value in entry.items() if name != "step"]
    state = {"best_metric": None, "best_model_checkpoint": None, "epoch": 2.0, "global_step": STEPS,
             "is_world_process_zero": True, "log_history": history, "logging_steps": 10, "max_steps": STEPS,
             "num_train_epochs": 2, "train_batch_size": 64}
    json.dump(state, out, indent=2)


FILES = {"megatron.log": megatron, "nanogpt.log": nanogpt, "hugging_face.log": hugging_face,
         "torchtitan.log": torchtitan, "key_value.txt": key_value, "metrics.csv": lightning,
         "scalars.jsonl": json_lines, "trainer_state.json": trainer_state}

if __name__ == "__main__":
    ROWS = list(train())
    EXPECTED = {}
    for name, write in FILES.items():
        EXPECTED[name] = []
        with open(os.path.join(HERE, name), "w", encoding="utf-8", newline="") as out:
            write(ROWS, out, EXPECTED[name])
    with open(os.path.join(HERE, "points.json"), "w", encoding="utf-8") as out:
        for points in EXPECTED.values():
            for point in points:
                if point[2] != point[2]:
                    point[2] = "nan"
        out.write("{\n" + ",\n".join(f'"{name}": {json.dumps(p, separators=(",", ":"))}' for name, p in EXPECTED.items())
                  + "\n}\n")
