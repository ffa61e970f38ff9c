"""Forms that people write: print, f-strings, logging, rich, loguru, structlog, JSON; several ranks, bars, colours, and
the prefixes of containers, clusters and collectors."""

import json

from console_forms import ROWS, Forms, bar, batch, batches, batches_from_0, each, epoch, time

FORMS = Forms()
add = FORMS.add

# print and f-strings.
add("epoch_batch_bar", lambda r, i: f"[Epoch {epoch(i) + 1}/6 | Batch {batch(i) + 1}/20] Loss: {r.loss[i]:.4f} | LR {r.rate[i]:.2e}", batches(), "Loss")
add("short_words", lambda r, i: f">>> ep {epoch(i)} it {batch(i)} loss {r.loss[i]:.4f} (avg {r.val[i]:.4f}) gn {r.norm[i]:.3f}", batches_from_0())
add("joined_words", lambda r, i: f"Epoch {epoch(i):03d} Iter {batch(i):05d} TrainLoss {r.loss[i]:.4f} ValLoss -", batches_from_0(), "TrainLoss")
add("letters", lambda r, i: f"03:22:{i % 60:02d} | e={epoch(i)} | i={i} | loss={r.loss[i]:.4f}", each(1, 0))
add("train_step", lambda r, i: f"train_step: {10 * i}, train_loss: {r.loss[i]:.4f}", each(10, 0), "train_loss")
add("arrow", lambda r, i: f"Step {i + 1}/{ROWS} -> loss: {r.loss[i]:.4f} (best: 0.1234 @ 80)", each())
add("semicolons", lambda r, i: f"Iter: {10 * i:04d}; Time: 1.23s; Loss: {r.loss[i]:.2e}; Grad: {r.norm[i]:.1e}", each(10, 0), "Loss")
add("hash", lambda r, i: f"#{100 * i} loss: {r.loss[i]:.4f} lr: {r.rate[i]:.1e}", each(100, 0))
add("parenthesis", lambda r, i: f"{100 * i}) loss = {r.loss[i]:.4f}", each(100, 0))
add("dot", lambda r, i: f"{i + 1}. train_loss={r.loss[i]:.4f} val_loss={r.val[i]:.4f}", each(), "train_loss")
add("nameless_of_total", lambda r, i: f"[{i + 1}/{ROWS}] {r.loss[i]:.4f}", each())
add("nameless_colon", lambda r, i: f"{100 * i}: {r.loss[i]:.6f}", each(100, 0))
add("loss_after", lambda r, i: f"Loss after {100 * i + 100} steps: {r.loss[i]:.6f}", each(100), "Loss")
add("loss_at_step", lambda r, i: f"Loss at step {100 * i}: {r.loss[i]:.6f}", each(100, 0), "Loss")
add("loss_at_iteration", lambda r, i: f"Training loss at iteration {100 * i} = {r.loss[i]:.6f}", each(100, 0), "Training loss")
add("loss_at_epoch", lambda r, i: f"Training loss (for epoch {i}): {r.loss[i]:.4f}", each(1, 0), "Training loss")
add("keras_custom_loop", lambda r, i: f"Training loss (for one batch) at step {100 * i}: {r.loss[i]:.4f}\nSeen so far: {6400 * i} samples", each(100, 0), "Training loss")
add("after_loss_is", lambda r, i: f"After {100 * i + 100} iterations, loss is {r.loss[i]:.6f}", each(100))
add("loss_is", lambda r, i: f"Training... global step {i + 1} | current loss is {r.loss[i]:.4f}", each(), "current loss")
add("loss_was", lambda r, i: f"At step {5 * i + 5}, training loss was {r.loss[i]:.4f}.", each(5), "training loss")
add("label_of_epoch", lambda r, i: f"{epoch(i) + 1}: {10 * batch(i) + 10}/200 loss {r.loss[i]:.4f}", batches(10))
add("label_of_epoch_step", lambda r, i: f"{epoch(i)}: step {batch(i)} loss {r.loss[i]:.4f} lr {r.rate[i]:.2e}", batches_from_0())
add("batch_of_in_epoch", lambda r, i: f"Batch {5 * batch(i) + 5} of 100 in epoch {epoch(i) + 1}, loss: {r.loss[i]:.4f}", batches(5))
add("dashes", lambda r, i: f"Step {i + 1} - loss: {r.loss[i]:.4f} - grad: {r.norm[i]:.3f} - 12.3 it/s", each())
add("global_step", lambda r, i: f"global step {10 * i} (epoch {epoch(i)}): loss {r.loss[i]:.4f}", each(10, 0))
add("bracketed_ratio", lambda r, i: f"Epoch {epoch(i) + 1} [{10 * batch(i) + 10}/200] loss={r.loss[i]:.4f} (avg {r.val[i]:.4f}), lr={r.rate[i]:.1e}", batches(10))
add("tagged", lambda r, i: f"[train] epoch {epoch(i)} step {i} loss {r.loss[i]:.4f}" + (f"\n[valid] epoch {epoch(i)} loss {r.val[i]:.4f}" if batch(i) == 19 else ""), each(1, 0))
add("loss_first", lambda r, i: f"loss: {r.loss[i]:.4f} | epoch: {epoch(i)} | step: {i + 1}", each())
add("tight", lambda r, i: f"Step={i + 1};loss={r.loss[i]:.4f};lr={r.rate[i]:.1e}", each())
add("ltsv", lambda r, i: f"time:{time(i)}\tstep:{i + 1}\tloss:{r.loss[i]:.4f}\tlr:{r.rate[i]:.1e}", each())
add("underscores", lambda r, i: f"step {1000 * i + 1000:_} loss {r.loss[i]:.4f}", each(1000))
add("thousands", lambda r, i: f"Step {1000 * i + 1000:,}: loss={r.loss[i]:.4f}, tokens={32768 * (i + 1):,}", each(1000))
add("scientific_wide", lambda r, i: f"step={i + 1:6d} loss={r.loss[i]:12.6e} gnorm={r.norm[i]:12.6e}", each())
add("padded_columns", lambda r, i: f"step {i + 1:>8} | train {'':2}loss {r.loss[i]:>10.4f} | lr {r.rate[i]:>10.3e} | {12.3:>6.1f} it/s", each())
add("seconds_first", lambda r, i: f"[{12.3 + i:8.2f}s] step {i + 1} loss {r.loss[i]:.4f}", each())
add("emoji", lambda r, i: f"🚀 Epoch {i + 1}/{ROWS} 📉 loss: {r.loss[i]:.4f} 🎯 acc: {100 * r.accuracy[i]:.1f}%", each())
add("train_valid_losses", lambda r, i: f"epoch {i + 1:3d}: train loss={r.loss[i]:.4f}, valid loss={r.val[i]:.4f}, {12.3:.1f}s", each(), "train loss")
add("tuple_of_losses", lambda r, i: f"Epoch {i + 1}: losses = (train: {r.loss[i]:.4f}, val: {r.val[i]:.4f})", each(), "train")
add("tensor", lambda r, i: f"epoch {i} loss tensor({r.loss[i]:.4f}, device='cuda:0', grad_fn=<NllLossBackward0>)", each(1, 0))

add("losses_in_braces", lambda r, i: f"step: {5 * i + 5}, lr: 1e-4, losses: {{'ce': {r.loss[i]:.4f}, 'aux': 0.0012}}, total: {r.loss[i]:.4f}", each(5), "ce")
add("scientific_step", lambda r, i: f"step {1000 * i + 1000:.4e} loss {r.loss[i]:.4f}", each(1000))
add("step_of_float", lambda r, i: f"step {float(10 * i + 10)} | loss {r.loss[i]:.4f}", each(10))
add("iter_alone", lambda r, i: f"ITER {5 * i + 5}: {r.loss[i]:.4f}", each(5))
add("epoch_loss_was", lambda r, i: f"Epoch {i + 1} loss was {r.loss[i]:.4f}", each())
add("finished_epoch", lambda r, i: f"Finished epoch {i + 1}, loss = {r.loss[i]:.4f}!", each())
add("epoch_done", lambda r, i: f"Epoch {i + 1} done. Loss: {r.loss[i]:.4f}.", each(), "Loss")
add("joined_step", lambda r, i: f"[step_{10 * i + 10}] loss {r.loss[i]:.4f} lr {r.rate[i]:.2e}", each(10))
add("dashed_step", lambda r, i: f"step-{10 * i + 10} loss {r.loss[i]:.4f} lr {r.rate[i]:.2e}", each(10))
add("updates", lambda r, i: f"Updates: {10 * i + 10} loss {r.loss[i]:.4f}", each(10))
add("letter_and_zeros", lambda r, i: f"S{5 * i + 5:06d} loss:{r.loss[i]:.4f} gn:{r.norm[i]:.3f}", each(5))
add("level_first", lambda r, i: f"12:00:{i % 60:02d} INFO loss={r.loss[i]:.4f} step={10 * i + 10}", each(10))
add("quoted_name", lambda r, i: f"INFO:__main__:'loss': {r.loss[i]:.4f}, step = {60 * i + 60}, acc: {100 * r.accuracy[i]:.1f}%", each(60))
add("tf_tensor", lambda r, i: f"step {i + 1}: loss=<tf.Tensor: shape=(), dtype=float32, numpy={r.loss[i]:.6f}> lr={r.rate[i]:.2e}", each())
add("tf_tensor_dictionary", lambda r, i: f"{{'loss': <tf.Tensor: shape=(), dtype=float32, numpy={r.loss[i]:.6f}>, 'step': {i + 1}}}", each())
add("yaml_dot_nan", lambda r, i: f"step: {i + 1}, loss: {('.nan' if r.loss[i] != r.loss[i] else f'{r.loss[i]:.4f}')}", each())
add("markdown_bold", lambda r, i: f"- step {i + 1}: loss **{r.loss[i]:.4f}**", each())
add("errors_of_gan", lambda r, i: f"iter {10 * i} | errD {r.loss[i]:.3f} | errG {r.val[i]:.3f}", each(10, 0), "errD", judged=False)
add("sentence_with_unit", lambda r, i: f"[INFO] Walker. Step: {1000 * i + 1000}. Time Elapsed: {12.3 + i:.1f} s. Mean Loss: {r.loss[i]:.4f}. Training.", each(1000), "Mean Loss")
add("info_loss_first", lambda r, i: f"INFO:train:loss={r.loss[i]:.4f} step={100 * i + 100}", each(100))
add("info_loss_comma", lambda r, i: f"INFO:tensorflow:loss = {r.loss[i]:.4f}, step = {100 * i + 100} (1.2 sec)", each(100))
add("german", lambda r, i: f"Schritt {5 * i + 5}: Verlust {r.loss[i]:.4f}, Lernrate {r.rate[i]:.2e}", each(5))
add("french", lambda r, i: f"Étape {5 * i + 5}/600 - perte : {r.loss[i]:.4f} - taux d'apprentissage : {r.rate[i]:.2e}", each(5))
add("spanish", lambda r, i: f"Época {i + 1}/{ROWS}, pérdida: {r.loss[i]:.4f}, precisión: {r.accuracy[i]:.4f}", each())
add("russian", lambda r, i: f"Шаг {5 * i + 5}: потери = {r.loss[i]:.4f}, скорость обучения = {r.rate[i]:.2e}", each(5))
add("chinese", lambda r, i: f"第{5 * i + 5}步，损失：{r.loss[i]:.4f}，学习率：{r.rate[i]:.2e}", each(5))
add("chinese_epoch", lambda r, i: f"第 {i + 1}/{ROWS} 轮 训练损失：{r.loss[i]:.4f} 验证损失：{r.val[i]:.4f}", each(), "train loss")
add("japanese", lambda r, i: f"エポック {i + 1}/{ROWS}: 損失 = {r.loss[i]:.4f}, 精度 = {r.accuracy[i]:.4f}", each())

# Blocks.
add("step_and_loss", lambda r, i: f"Step: {5 * i + 5}\nLoss: {r.loss[i]:.4f}\n", each(5), "Loss")
add("step_and_values", lambda r, i: f"{time(i)},123 - INFO - Step {5 * i + 5}\n{time(i)},124 - INFO - Loss: {r.loss[i]:.4f}\n{time(i)},125 - INFO - LR: {r.rate[i]:.2e}", each(5), "Loss")
add("tinker", lambda r, i: f"INFO:tinker_cookbook.supervised.train:Step {i + 1}\n                Step {i + 1}                \n┏━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┓\n┃ Metric         ┃ Value      ┃\n"
    f"┡━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━┩\n│ epoch          │ {epoch(i):<10} │\n│ learning_rate  │ {r.rate[i]:<10.6f} │\n│ train_mean_nll │ {r.loss[i]:<10.6f} │\n│ time/step      │ {1.5:<10.6f} │\n"
    "└────────────────┴────────────┘", each(), "train_mean_nll")
add("ray_tune", lambda r, i: f"Result for PPO_CartPole-v1_abc12_00000:\n  agent_timesteps_total: {4000 * i + 4000}\n  counters:\n    num_agent_steps_sampled: 4000\n  date: 2024-06-01_12-00-00\n"
    f"  episode_reward_mean: {20 + 0.1 * i:.2f}\n  info:\n    learner:\n      default_policy:\n        learner_stats:\n          total_loss: {r.loss[i]:.4f}\n          vf_loss: {r.val[i]:.4f}\n"
    f"  timesteps_total: {4000 * i + 4000}\n  training_iteration: {i + 1}\n  trial_id: abc12_00000\n", each(), "total_loss", judged=False)
add("ray_tune_blank", lambda r, i: f"Result for PPO_CartPole-v1_abc12_00000:\n  info:\n    learner:\n      total_loss: {r.loss[i]:.4f}\n  timesteps_total: {4000 * i + 4000}\n  training_iteration: {i + 1}\n", each(),
    "total_loss")
add("allennlp_table", lambda r, i: f"{time(i)},123 - INFO - allennlp.trainer - Epoch {i}/{ROWS - 1}\n{time(i)},123 - INFO - allennlp.console_logger -                        Training |  Validation\n"
    f"{time(i)},124 - INFO - allennlp.console_logger - gpu_0_memory_MB    |  1234.000  |       N/A\n{time(i)},124 - INFO - allennlp.console_logger - loss               | {r.loss[i]:9.4f}  | {r.val[i]:9.4f}", each(1, 0))
add("bentrevett", lambda r, i: f"Epoch: {i + 1:02} | Epoch Time: 0m 12s\n\tTrain Loss: {r.loss[i]:.3f} | Train Acc: {100 * r.accuracy[i]:.2f}%\n\t Val. Loss: {r.val[i]:.3f} |  Val. Acc: {98 * r.accuracy[i]:.2f}%",
    each(), "Train Loss")
add("banner", lambda r, i: f"====== Epoch {i + 1} ======\nloss: {r.loss[i]:.4f}\nval_loss: {r.val[i]:.4f}\n", each())
add("banner_parts", lambda r, i: f"---- epoch {i + 1} ----\ntrain | loss {r.loss[i]:.4f} | acc {r.accuracy[i]:.3f}\nvalid | loss {r.val[i]:.4f} | acc {r.accuracy[i]:.3f}", each())
add("indented_parts", lambda r, i: f"Epoch {i + 1}:\n  train: loss={r.loss[i]:.4f} acc={r.accuracy[i]:.3f}\n  valid: loss={r.val[i]:.4f} acc={r.accuracy[i]:.3f}", each())
add("yaml", lambda r, i: f"- epoch: {i + 1}\n  loss: {r.loss[i]:.6f}\n  val_loss: {r.val[i]:.6f}", each())
add("step_line", lambda r, i: f"Step {i + 1}/{ROWS}\n  loss       : {r.loss[i]:.4f}\n  grad norm  : {r.norm[i]:.4f}\n  lr         : {r.rate[i]:.2e}\n", each())
add("stamped_block", lambda r, i: f"{time(i)},123 - INFO - Epoch {i + 1}/{ROWS}\n{time(i)},124 - INFO - Train loss: {r.loss[i]:.4f}\n{time(i)},125 - INFO - Val loss: {r.val[i]:.4f}", each(), "Train loss")

# Tables.
add("rich_table", lambda r, i: f"│ {i + 1:>5} │ {r.loss[i]:>10.4f} │ {r.val[i]:>8.4f} │", each(), "Train Loss",
    head="┏━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━┓\n┃ Epoch ┃ Train Loss ┃ Val Loss ┃\n┡━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━┩\n")
add("tabulate_grid", lambda r, i: f"| {i + 1:7d} | {r.loss[i]:8.4f} |\n+---------+----------+", each(), head="+---------+----------+\n|   epoch |     loss |\n+=========+==========+\n")
add("pandas", lambda r, i: f"{i:<3d} {i + 1:6d}  {r.loss[i]:8.6f}  {r.val[i]:8.6f}", each(), head="     epoch      loss  val_loss\n", file="out.txt")
add("markdown", lambda r, i: f"| {i + 1} | {r.loss[i]:.4f} | {r.val[i]:.4f} |", each(), head="| epoch | loss | val_loss |\n|---|---|---|\n")
add("columns_again", lambda r, i: ("    step      loss        lr\n" if i % 20 == 0 else "") + f"{10 * i:8d}  {r.loss[i]:8.4f}  {r.rate[i]:8.1e}", each(10, 0))
add("printed_csv", lambda r, i: f"{i + 1},{r.loss[i]:.4f},{r.rate[i]:.2e}", each(), head="step,loss,lr\n")
add("pandas_history", lambda r, i: f"{i},{r.loss[i]},{r.val[i]}", each(1, 0), head=",loss,val_loss\n", file="history.csv")

# Loggers.
add("logging", lambda r, i: f"{time(i)},123 - __main__ - INFO - Epoch {epoch(i) + 1} - Batch {10 * batch(i) + 10}/200 - Loss: {r.loss[i]:.4f} - Acc: {100 * r.accuracy[i]:.1f}%", batches(10), "Loss")
add("rich_handler", lambda r, i: f"[03:22:{i % 60:02d}] INFO     Epoch {i + 1} ┃ loss {r.loss[i]:.4f} ┃ lr {r.rate[i]:.2e}          train.py:88", each())
add("structlog_console", lambda r, i: f"\x1b[2m{time(i)}\x1b[0m [\x1b[32m\x1b[1minfo     \x1b[0m] \x1b[1mtrain step                    \x1b[0m \x1b[36mloss\x1b[0m=\x1b[35m{r.loss[i]}\x1b[0m "
    f"\x1b[36mlr\x1b[0m=\x1b[35m{r.rate[i]}\x1b[0m \x1b[36mstep\x1b[0m=\x1b[35m{i + 1}\x1b[0m", each())
add("loguru_dictionary", lambda r, i: f"{time(i)}.123 | INFO     | __main__:train:88 - {{'step': {i + 1}, 'loss': {r.loss[i]}}}", each())
add("logfmt", lambda r, i: f'time={time(i).replace(" ", "T")}Z level=info msg="train step" step={i + 1} loss={r.loss[i]:.4f} lr={r.rate[i]:.2e}', each())
add("module_and_line", lambda r, i: f"[{time(i)}] [INFO] [train.py:88:train_epoch] [Epoch {epoch(i)}] [Step {i + 1}] loss {r.loss[i]:.4f}", each())
add("glog", lambda r, i: f"I0514 03:22:10.{i:06d} 12345 train.py:88] step {i + 1} loss {r.loss[i]:.4f}", each())
add("json_nested", lambda r, i: "METRICS: " + json.dumps({"step": i + 1, "train": {"loss": r.loss[i], "lr": r.rate[i]}}), each(), "train/loss")
add("json_epoch", lambda r, i: json.dumps({"epoch": i + 1, "loss": r.loss[i], "val_loss": r.val[i]}), each())
add("json_metric", lambda r, i: json.dumps({"metric": "train_loss", "value": r.loss[i], "step": i + 1}), each(), "train_loss")
add("json_among_lines", lambda r, i: f"saving cache of shard {i}\n" + json.dumps({"step": i + 1, "loss": r.loss[i]}), each())

# Bars.
add("description", lambda r, i: bar(i, f"loss {r.loss[i]:.4f}: "), each(), end="\r")
add("description_epoch", lambda r, i: f"Epoch {epoch(i) + 1}/6, loss={r.loss[i]:.4f}: {5 * batch(i) + 5:3d}%|{'█' * (batch(i) // 2):<10}| {batch(i) + 1}/20 [00:01<00:02,  9.12it/s]", batches(), end="\r")
add("postfix", lambda r, i: bar(i, "Training: ", f"loss={r.loss[i]:.3g}, ema={r.val[i]:.3g}, lr=1e-4"), each(), end="\r")
add("unit_scale", lambda r, i: f"train: {(i + 1) // 12:3d}%|{'█' * (i // 12):<10}| {(i + 1) * 10 / 1000:.2f}k/1.20k [00:10<10:00, 1.95it/s, loss={r.loss[i]:.3f}]", each(10), end="\r")
add("unit_scale_large", lambda r, i: f"{(i + 1) // 12:3d}%|{'#' * (i // 12):<10}| {(i + 1) / 10:.1f}k/12.0k [1:02<10:00, 1.95kit/s, loss={r.loss[i]:.3f}]", each(100))
for name, prefix in (("", ""), ("_logger", "2024-06-01 12:00:00,123 - INFO - my.trainer - "), ("_banner", "==== ")):
    add(f"bar_of_epoch{name}", lambda r, i, prefix=prefix: f"{prefix}Epoch {i}/{ROWS - 1}{' ====' if '=' in prefix else ''}\n100%|##########| 50/50 [00:12<00:00,  8.11it/s, loss={r.loss[i]:.4f}]",
        each(50))
    add(f"bars_of_epoch{name}", lambda r, i, prefix=prefix: (f"{prefix}Epoch {epoch(i) + 1}/6{' ====' if '=' in prefix else ''}\n" if batch(i) == 0 else "")
        + f"{5 * batch(i) + 5:3d}%|{'█' * (batch(i) // 2):<10}| {batch(i) + 1}/20 [00:01<00:02,  9.12it/s, loss={r.loss[i]:.4f}]", batches())
add("brackets_of_two", lambda r, i: f"{time(i)},123 INFO - epoch:[{epoch(i) + 1:2d}/ 6], step:[{10 * batch(i) + 10:5d}/  200], loss:[{r.loss[i]:.3f}/{r.loss[i]:.3f}], time:580.9 ms, lr:{r.rate[i]:.5f}",
    batches(10))
add("alive_progress", lambda r, i: f"\ron {i + 1}: |{'█' * (i // 3):<40}| {i + 1}/{ROWS} [{100 * (i + 1) // ROWS}%] in 1:02 (~9s, 1.2/s) loss: {r.loss[i]:.4f}", each(), end="")
add("progressbar2", lambda r, i: f"\r{100 * (i + 1) // ROWS:3d}% ({i + 1} of {ROWS}) |{'#' * (i // 6):<20}| Elapsed Time: 0:00:01 ETA:   0:00:09 loss: {r.loss[i]:.4f}", each(), end="")
add("own_bar", lambda r, i: f"\r[{'=' * (i // 6):<20}] {i + 1}/{ROWS} loss: {r.loss[i]:.4f}", each(), end="")
add("rich_progress", lambda r, i: f"Training ━━━━━━━━━━━━━━━━━━ {100 * (i + 1) // ROWS:3d}% {i + 1}/{ROWS} 0:00:10 loss={r.loss[i]:.4f}", each())

# Prefixes and suffixes of other programs, and several ranks.
add("ranks", lambda r, i: "".join(f"[rank {q}] step {i + 1} loss {r.loss[i] + 0.001 * q:.4f}\n" for q in (1, 0, 2)), each(), end="")
add("ranks_bar", lambda r, i: "".join(f"rank{q} | step {i + 1} | loss {r.loss[i] + 0.001 * q:.4f}\n" for q in (0, 1)), each(), end="")
add("srun", lambda r, i: "".join(f"{q}: step {i + 1} loss {r.loss[i] + 0.001 * q:.4f}\n" for q in (0, 1)), each(), end="")
add("torchrun_tee", lambda r, i: "".join(f"[trainer{q}]:step {i + 1} loss {r.loss[i] + 0.001 * q:.4f}\n" for q in (0, 1)), each(), end="")
add("kubernetes", lambda r, i: f"{time(i).replace(' ', 'T')}.123456789Z stdout F step={i + 1} loss={r.loss[i]:.4f}", each())
add("stern", lambda r, i: f"trainer-0 worker step={i + 1} loss={r.loss[i]:.4f}", each())
add("docker_compose", lambda r, i: f"trainer_1  | step {i + 1} loss {r.loss[i]:.4f}", each())
add("ray", lambda r, i: f"\x1b[36m(TrainWorker pid=12345, ip=10.0.0.{i % 3})\x1b[0m step {i + 1} loss {r.loss[i]:.4f}", each())
add("wandb_output", lambda r, i: ("\x1b[34m\x1b[1mwandb\x1b[0m: Tracking run with wandb version 0.17.0\n" if i == 0 else "") + f"\x1b[32mstep\x1b[0m \x1b[1m{i + 1}\x1b[0m loss: \x1b[31m{r.loss[i]:.4f}\x1b[0m", each())
for name, worker in (("", "TaskRunner pid=12"), ("_ip", "TrainWorker pid=12, ip=10.0.0.2")):
    add(f"ray_step{name}", lambda r, i, worker=worker: f"({worker}) step:{i + 1} - loss:{r.loss[i]:.4f} - lr:{r.rate[i]:.2e}", each())
    add(f"ray_rows{name}", lambda r, i, worker=worker: f"({worker}) {bar(i)}\n({worker}) {{'loss': {r.loss[i]:.4f}, 'grad_norm': {r.norm[i]:.4f}, 'epoch': {i / ROWS:.2f}}}", each())
add("srun_ratio", lambda r, i: "".join(f"{q}: {i + 1}/{ROWS} loss {r.loss[i] + 0.001 * q:.4f}\n" for q in (0, 1)), each(), end="")
add("syslog", lambda r, i: f"May 14 03:22:{i % 60:02d} gpu-a-17 train[12345]: step {i + 1} loss {r.loss[i]:.4f}", each())
add("github_actions", lambda r, i: f"{time(i).replace(' ', 'T')}.1234567Z step {i + 1} loss {r.loss[i]:.4f}", each())
add("airflow", lambda r, i: f"[{time(i).replace(' ', 'T')}.123+0000] {{subprocess.py:93}} INFO - step {i + 1} loss {r.loss[i]:.4f}", each())
add("among_warnings", lambda r, i: ("/usr/lib/python3/dist-packages/torch/optim/lr_scheduler.py:143: UserWarning: Detected call of `lr_scheduler.step()` before 1 step\n  warnings.warn(\n" if i % 30 == 0 else "")
    + f"epoch {epoch(i)}, iter {batch(i)}: loss {r.loss[i]:.4f}", batches_from_0())
add("returns_of_windows", lambda r, i: f"Step {i + 1}: loss = {r.loss[i]:.4f}", each(), end="\r\n")
add("cloud_watch", lambda r, i: json.dumps({"timestamp": 1715000000000 + i, "message": f"step {i + 1} loss {r.loss[i]:.4f}"}), each(), file="log.json")
add("fluentd", lambda r, i: f"{time(i).replace(' ', 'T')}+00:00\tdocker.train\t" + json.dumps({"container_id": "abc", "log": f"step {i + 1} loss {r.loss[i]:.4f}"}),
    each())
add("structlog_json", lambda r, i: json.dumps({"event": f"Iteration {i + 1} Loss: {r.loss[i]:.4f} LR: {r.rate[i]:.6f}", "level": "info", "timestamp": f"{time(i).replace(' ', 'T')}Z"}),
    each(), "Loss")
add("gpu_stats_between", lambda r, i: f"step {i + 1} loss {r.loss[i]:.4f} | GPU0 45C 312W/400W 71%", each())

# A count that is called like a total, and an epoch with a fraction as the only step.
add("num_steps", lambda r, i: f"num_steps={30 * i + 30} loss={r.loss[i]:.4f}", each(30))
add("num_steps_last", lambda r, i: f"loss: {r.loss[i]:.4f}, lr: {r.rate[i]:.2e}, num_steps: {30 * i + 30}", each(30))
add("num_steps_json", lambda r, i: json.dumps({"num_steps": 30 * i + 30, "loss": r.loss[i]}), each(30), file="metrics.jsonl")
for name, file in (("log", "train.log"), ("jsonl", "metrics.jsonl")):
    add(f"parts_of_epochs_{name}", lambda r, i: json.dumps({"epoch": round((i + 1) / 40, 3), "loss": r.loss[i], "grad_norm": r.norm[i]}), each(), file=file)
    add(f"parts_of_epochs_evaluated_{name}", lambda r, i: json.dumps({"loss": r.loss[i], "learning_rate": r.rate[i], "epoch": round((i + 1) / 40, 3)})
        + ("\n" + json.dumps({"eval_loss": r.val[i], "epoch": round((i + 1) / 40, 3)}) if i % 10 == 9 else ""), each(), file=file)

# What stands between rows: rules, a header that comes again, a warning that is repeated at each epoch.
RULE = "-" * 60
BETWEEN = {"rules": lambda i: RULE + "\n", "equals": lambda i: "=" * 80 + "\n" if batch(i) == 0 else "", "stars": lambda i: "*" * 40 + "\n", "mixed": lambda i: (RULE + "\n") * (1 + i % 2),
    "title": lambda i: f"{RULE}\nMy Experiment v1.2 (4 GPUs)\n{RULE}\n" if batch(i) == 0 else ""}
for name, rule in BETWEEN.items():
    add(f"{name}_between_steps", lambda r, i, rule=rule: rule(i) + f"step {i + 1} | loss {r.loss[i]:.4f} | lr {r.rate[i]:.2e}", each())
    add(f"{name}_between_epochs", lambda r, i, rule=rule: rule(i) + f"Epoch {i + 1}/{ROWS}\ntrain loss: {r.loss[i]:.4f}\nval loss: {r.val[i]:.4f}", each(), "train loss")
for every in (1, 20, 50):
    for name, head in (("columns", "  epoch    train_loss    valid_loss     lr"), ("pipes", "| epoch | train_loss | valid_loss | lr |"), ("underlined", f"epoch    train_loss    valid_loss     lr\n{RULE}")):
        def row(r, i, name=name):
            cells = (f"{i + 1:d}", f"{r.loss[i]:.4f}", f"{r.val[i]:.4f}", f"{r.rate[i]:.2e}")
            return "| " + " | ".join(cells) + " |" if name == "pipes" else "    ".join(f"{cell:>8}" for cell in cells)
        add(f"header_again_{name}_{every}", lambda r, i, every=every, head=head, row=row: (head + "\n" if i % every == 0 else "") + row(r, i), each(), "train_loss")

# The training and an evaluation on one line, with the same names.
for name, line in (("pipes", "Epoch {i} | Training: loss = {loss:.4f}, acc = {acc:.4f} | Val: loss = {val:.4f}, acc = {acc:.4f}"), ("commas", "Epoch {i}: train: loss={loss:.4f} acc={acc:.4f}, val: loss={val:.4f} acc={acc:.4f}"),
    ("columns", "Epoch {i} | train | loss {loss:.4f} | acc {acc:.4f} | val | loss {val:.4f} | acc {acc:.4f}"), ("parentheses", "Epoch {i} train: (loss {loss:.4f}, acc {acc:.4f}) valid: (loss {val:.4f}, acc {acc:.4f})"),
    ("steps", "step {i} - train loss: {loss:.4f} acc: {acc:.4f} - val loss: {val:.4f} acc: {acc:.4f}"), ("three", "Epoch {i}: train: loss={loss:.4f}, val: loss={val:.4f}, test: loss={val:.4f}")):
    add(f"two_sets_{name}", lambda r, i, line=line: line.format(i=i + 1, loss=r.loss[i], val=r.val[i], acc=r.accuracy[i]), each())
# No count at all: rows are numbered.
add("no_count", lambda r, i: f"loss: {r.loss[i]:.4f}, lr: {r.rate[i]:.2e}", each(), head="Loading the data\n")
add("no_count_bullets", lambda r, i: f"- train_loss={r.loss[i]:.4f} val_loss={r.val[i]:.4f}", each(), "train_loss")
