"""Consoles of public programs, in the format of their source code."""

import json

import console_forms
from console_forms import ROWS, Forms, bar, batch, batches, batches_from_0, each, epoch, time

FORMS = Forms()
add = FORMS.add

# Language and speech.
add("sockeye", lambda r, i: f"[{time(i).replace(' ', ':')}:INFO:sockeye.training:log] Epoch[{epoch(i)}] Batch [{50 * batch(i) + 50}]  "
    f"Speed: 1055.60 samples/sec 21000.10 tokens/sec 1.20 updates/sec  cross-entropy={r.loss[i]:.6f}", batches(50), "cross-entropy")
add("joeynmt", lambda r, i: f"{time(i)},123 - INFO - joeynmt.training - Epoch {epoch(i) + 1:3d}, Step: {100 * i + 100:8d}, "
    f"Batch Loss: {r.loss[i]:12.6f}, Batch Acc: {r.accuracy[i]:.6f}, Tokens per Sec: {12345:8.0f}, Lr: {r.rate[i]:.6f}",
    each(100), "Batch Loss")
add("nemo2", lambda r, i: f"Training epoch 0, iteration {i}/{ROWS - 1} | lr: {r.rate[i]:.4g} | global_batch_size: 8 | global_step: {i} | "
    f"reduced_train_loss: {r.loss[i]:.4g} | train_step_timing in s: 1.231 | consumed_samples: {8 * i + 8}", each(1, 0), "reduced_train_loss")
add("maxtext", lambda r, i: f"completed step: {i}, seconds: 1.234, TFLOP/s/device: 123.450, Tokens/s/device: 1234.500, "
    f"total_weights: 65536, loss: {r.loss[i]:.3f}", each(1, 0))
add("easylm", lambda r, i: "{'accuracy': %r,\n 'gradient_norm': %r,\n 'learning_rate': %r,\n 'loss': %r,\n 'step': %d}"
    % (r.accuracy[i], r.norm[i], r.rate[i], r.loss[i], 10 * i), each(10, 0))
add("flax_clm", lambda r, i: f"Step... ({100 * i + 100} | Loss: {r.loss[i]}, Learning Rate: {r.rate[i]})", each(100), "Loss")
add("lingua", lambda r, i: f"0: INFO    {time(i)[2:]}.123456 - 0:01:02 - step: {10 * i + 10}  acc: 0  loss: {r.loss[i]:7.4f}  grad: {r.norm[i]:.2e}  "
    f"flops: 3.10e+14  wps: 1.23e+04  iter:  0.7012  data:  0.0110  lr: {r.rate[i]:.2e}  mem: 27%  pow: 400.1 W", each(10))
add("fairseq2", lambda r, i: f"[{time(i)},123] [Rank 0] INFO: fairseq2.recipes.common - Train Metrics (step {10 * i + 10}) - Loss: {r.loss[i]:.5f} | "
    f"Gradient Norm: {r.norm[i]:.5f} | Learning Rate: {r.rate[i]:.4e} | Elements per Second: 12,345", each(10), "Loss")
add("cerebras", lambda r, i: f"{time(i)},123 INFO:   | Train Device=CSX, Step={10 * i + 10}, Loss={r.loss[i]:.5f}, Rate=1234.50 samples/sec, "
    f"GlobalRate=1234.51 samples/sec, LoopTimeRemaining=1:02:03", each(10), "Loss")
add("mindformers", lambda r, i: f"{time(i)},123 - mindformers[mindformers/core/callback/callback.py:316] - INFO - {{ Epoch:[{1:3d}/{1:3d}], "
    f"step:[{i + 1:5d}/{ROWS:5d}], loss: {r.loss[i]:.3f}, per_step_time: 1234ms, lr: {r.rate[i]:.4g}, overflow cond: False, "
    f"loss_scale: 65536.0, global_norm: [{r.norm[i]:.4f}]", each())
add("libai", lambda r, i: f"[05/14 03:22:10 lb.utils.events]:  eta: 0:12:03  iteration: {i}/{ROWS}  consumed_samples: {128 * i}  "
    f"total_loss: {r.loss[i]:.4g}  time: 0.1234 s/iter  data_time: 0.0012 s/iter total_throughput: 123.40 samples/s lr: {r.rate[i]:.2e}",
    each(1, 0), "total_loss")
add("gpt2_simple", lambda r, i: f"[{10 * i + 10} | {12.34 + i:2.2f}] loss={r.loss[i]:2.2f} avg={r.val[i]:2.2f}", each(10))
add("char_rnn_torch", lambda r, i: f"{i + 1}/21150 (epoch {i / 423:.3f}), train_loss = {r.loss[i]:6.8f}, grad/param norm = {0.01 * r.norm[i]:6.4e}, "
    f"time/batch = 0.61s", each(), "train_loss")
add("char_rnn_tf", lambda r, i: f"{i}/8900 (epoch {epoch(i)}), train_loss = {r.loss[i]:.3f}, time/batch = 0.123", each(1, 0), "train_loss")
add("word_lm", lambda r, i: f"| epoch {epoch(i) + 1:3d} | {200 * batch(i) + 200:5d}/ 4000 batches | lr {20 * r.rate[i]:.4f} | ms/batch 12.34 | "
    f"loss {r.loss[i]:5.2f} | ppl {2.7 ** r.loss[i]:8.2f}", batches(200), head="-" * 89 + "\n")
add("transformer_xl", lambda r, i: f"| epoch {epoch(i) + 1:3d} step {200 * i + 200:8d} | {200 * batch(i) + 200:6d} batches | lr {r.rate[i]:.3g} | "
    f"ms/batch 123.45 | loss {r.loss[i]:5.2f} | ppl {2.7 ** r.loss[i]:9.3f}", each(200))
add("annotated_transformer", lambda r, i: f"Epoch Step: {40 * batch(i) + 1:6d} | Accumulation Step: {4 * batch(i) + 1:3d} | Loss: {r.loss[i]:6.2f} | "
    f"Tokens / Sec: {1234.5:7.1f} | Learning Rate: {r.rate[i]:6.1e}", lambda i: epoch(i) * 761 + 40 * batch(i) + 1, "Loss")
add("stanza", lambda r, i: f"{time(i)} INFO: Finished STEP {20 * i + 20}/50000, loss = {r.loss[i]:.6f} (0.123 sec/batch), lr: {r.rate[i]:.6f}", each(20))
add("farm", lambda r, i: bar(i, f"Train epoch 0/0 (Cur. train loss: {r.loss[i]:.4f}): "), each(), "Cur. train loss", end="\r")
add("simpletransformers", lambda r, i: bar(i, f"Epochs 0/1. Running Loss: {r.loss[i]:9.4f}: "), each(), "Running Loss", end="\r")
add("setfit", lambda r, i: str({"embedding_loss": r.loss[i], "learning_rate": r.rate[i], "epoch": round(i / ROWS, 2)}), each(), "embedding_loss")
add("deeppavlov", lambda r, i: json.dumps({"train": {"eval_examples_count": 64, "metrics": {"f1": r.accuracy[i]}, "time_spent": "0:00:10",
    "epochs_done": epoch(i), "batches_seen": 100 * i + 100, "train_examples_seen": 6400 * i, "loss": r.loss[i]}}), each(100), "train/loss")
add("wenet", lambda r, i: f"{time(i)},123 DEBUG TRAIN Batch {epoch(i)}/{100 * batch(i)} loss {r.loss[i]:.6f} loss_att {0.9 * r.loss[i]:.6f} "
    f"loss_ctc {1.2 * r.loss[i]:.6f} lr {r.rate[i]:.8f} rank 0", batches_from_0(100))
add("funasr", lambda r, i: f"[{time(i)},123][root][INFO] - train, rank: 0, epoch: 0/50, data_slice: 0/1, step_in_slice: {50 * i + 50}/6000, "
    f"step_in_epoch: {50 * i + 50}, total step: {50 * i + 50}, (loss_avg_rank: {r.loss[i]:.3f}), (loss_avg_slice: {r.loss[i]:.3f}), "
    f"(acc_avg_slice: {r.accuracy[i]:.3f}), (lr: {r.rate[i]:.3e}), [('loss', {r.loss[i]:.3f})], {{'data_load': '0.010'}}, GPU, memory: usage: 1.2 GB",
    each(50), "loss_avg_rank")
add("deepspeech", lambda r, i: f"Epoch {i} |   Training | Elapsed Time: 0:00:{i % 60:02d} | Steps: 100 | Loss: {r.loss[i]:.6f}\n"
    f"Epoch {i} | Validation | Elapsed Time: 0:00:02 | Steps: 20 | Loss: {r.val[i]:.6f} | Dataset: dev.csv", each(100), "Loss")
add("flashlight", lambda r, i: f"epoch: {i + 1:8d} | nupdates: {1000 * i + 1000:12d} | lr: {r.rate[i]:.6f} | lrcriterion: 0.006000 | runtime: 00:10:23 | "
    f"bch(ms): 623.12 | smp(ms): 1.23 | fwd(ms): 201.10 | loss: {r.loss[i]:10.5f} | train-TER: 45.12 | dev-loss: {r.val[i]:10.5f}", each(1000))
add("waveglow", lambda r, i: f"{10 * i}:\t{r.loss[i]:.9f}", each(10, 0))
add("hifigan", lambda r, i: f"Steps : {5 * i}, Gen Loss Total : {r.loss[i]:4.3f}, Mel-Spec. Error : {0.3 * r.val[i]:4.3f}, s/b : 0.512",
    each(5, 0), "Gen Loss Total", judged=False)
add("parallel_wavegan", lambda r, i: f"{time(i)},123 (train:512) INFO: (Steps: {100 * i + 100}) train/spectral_convergence_loss = {r.loss[i]:.4f}.",
    each(100), "train/spectral_convergence_loss")
add("fastspeech2", lambda r, i: f"Step {100 * i + 100}/900000, Total Loss: {r.loss[i]:.4f}, Mel Loss: {0.4 * r.val[i]:.4f}, Pitch Loss: {0.1 * r.val[i]:.4f}",
    each(100), "Total Loss")
add("tacotron2", lambda r, i: f"Train loss {10 * i} {r.loss[i]:.6f} Grad Norm {r.norm[i]:.6f} 1.23s/it", each(10, 0), "Train loss")
add("vits", lambda r, i: f"INFO:rvc:Train Epoch: {epoch(i) + 1} [{5 * batch(i)}%]\nINFO:rvc:[{200 * i + 200}, {r.rate[i]!r}]\n"
    f"INFO:rvc:loss_disc=3.812, loss_gen=2.512, loss_fm=9.123,loss_mel={r.loss[i]:.3f}, loss_kl=1.234", each(200), "loss_mel")
add("trax", lambda r, i: f"Step {100 * i + 100:6d}: Ran 100 train steps in 12.34 secs\nStep {100 * i + 100:6d}: train CrossEntropyLoss |  {r.loss[i]:.8f}\n"
    f"Step {100 * i + 100:6d}: eval  CrossEntropyLoss |  {r.val[i]:.8f}", each(100), "train CrossEntropyLoss")
add("paxml", lambda r, i: f"I0514 03:22:10.123456 139812345 programs.py:434] [PAX STATUS]: step_i: {100 * i + 100}, training loss: {r.loss[i]:.6g}",
    each(100), "training loss")
add("fasttext", lambda r, i: f"\rProgress: {(i + 1) / 1.2:5.1f}% words/sec/thread:   12345 lr:  {r.rate[i]:.6f} avg.loss: {r.loss[i]:9.6f} ETA:   0h 0m 3s",
    lambda i: round((i + 1) / 1.2, 1) * 10, "avg.loss", end="")
add("starspace", lambda r, i: f"\rEpoch: {i / 1.2:.1f}%  lr: {r.rate[i]:.6f}  loss: {r.loss[i]:.6f}  eta: <1min   tot: 0h0m1s  ({i / 12:.1f}%)",
    lambda i: round(i / 1.2, 1) * 10, end="")
add("glove", lambda r, i: f"05/14/24 - {3 + i // 60:02d}:{i % 60:02d}.10PM, iter: {i + 1:03d}, cost: {r.loss[i]:.6f}", each(), "cost")
add("llama_cpp", lambda r, i: f"train: [████░░░░] data={i + 1:07d}/0000120 loss={r.loss[i]:.5f}±0.01234 acc={100 * r.accuracy[i]:.2f}±0.12% t=00:00:12 ETA=00:12:03", each())
add("makemore", lambda r, i: f"{100 * i:7d}/  12000: {r.loss[i]:.4f}", each(100, 0))
add("parlai", lambda r, i: f"{time(i)[11:]} INFO | time:{10 + i}s total_exs:{64 * i + 64} total_steps:{i + 1} epochs:{i / ROWS:.2f}\n"
    f"    clen  clip  exs/s  gnorm  loss      lr  total_train_updates\n   12.31     1  812.3 {r.norm[i]:6.4g} {r.loss[i]:5.4g} {r.rate[i]:.6f} {i + 1:20d}\n", each())

# Vision.
add("open_clip", lambda r, i: f"{time(i).replace(' ', ',')} | INFO | Train Epoch: {epoch(i)} [{512 * batch(i) + 512:6d}/10240 ({5 * batch(i) + 5}%)] "
    f"Data (t): 0.123 Batch (t): 0.456, 1123.45/s, 140.431/s/gpu LR: {r.rate[i]:.6f} Logit Scale: 14.286 "
    f"Contrastive_loss: {r.loss[i]:.5g} ({r.loss[i]:.5g}) Loss: {r.loss[i]:.5g} ({r.loss[i]:.5g})", batches(512), "Loss")
add("dino", lambda r, i: f"Epoch: [{epoch(i)}/100]  [{10 * batch(i):4d}/200]  eta: 0:12:03  loss: {r.loss[i]:.6f} ({r.val[i]:.6f})  "
    f"lr: {r.rate[i]:.6f} ({r.rate[i]:.6f})  wd: 0.040000 (0.040000)  time: 0.512 data: 0.012 max mem: 12345", batches_from_0(10))
add("dinov2", lambda r, i: f"I20240514 03:22:10 12345 dinov2 helpers.py:103] Training  [{10 * i:6d}/125000]  eta: 12:03:04  lr: {r.rate[i]:.4f} ({r.rate[i]:.4f})  "
    f"total_loss: {r.loss[i]:.4f} ({r.val[i]:.4f})  koleo_loss: {0.1 * r.val[i]:.4f} (0.1235)  time: 0.512345  data: 0.001234  max mem: 12345", each(10, 0), "total_loss")
add("dit", lambda r, i: f"[\x1b[34m{time(i)}\x1b[0m] (step={100 * i + 100:07d}) Train Loss: {r.loss[i]:.4f}, Train Steps/Sec: 1.23", each(100), "Train Loss")
add("simclr", lambda r, i: f"DEBUG:root:Epoch: {i}\tLoss: {r.loss[i]}\tTop1 accuracy: {100 * r.accuracy[i]}", each(1, 0), "Loss")
add("latent_diffusion", lambda r, i: bar(i, "Epoch 0: ", f"loss={r.val[i]:.3g}, v_num=0, train/loss_simple_step={r.loss[i]:.3f}, train/loss_vlb_step={0.01 * r.val[i]:.3g}, "
    f"train/loss_step={r.loss[i]:.3f}, global_step={i:.1f}"), each(1, 0), "train/loss_step", end="\r")
add("guided_diffusion", lambda r, i: "-" * 25 + f"\n| grad_norm  | {r.norm[i]:<8.3g} |\n| loss       | {r.loss[i]:<8.3g} |\n| loss_q0    | {r.loss[i]:<8.3g} |\n"
    f"| samples    | {128.0 * i:<8.3g} |\n| step       | {float(i):<8.3g} |\n" + "-" * 25, each(1, 0))
add("dalle_pytorch", lambda r, i: f"{epoch(i)} {10 * batch(i)} loss - {r.loss[i]}", batches_from_0(10))
add("unet", lambda r, i: f"Epoch {epoch(i) + 1}/6: {5 * batch(i) + 5:3d}%|{'█' * (batch(i) // 2):<10}| {4 * batch(i) + 4}/80 [00:10<01:30, 4.01img/s, loss (batch)={r.loss[i]:.3g}]",
    batches(4), "loss (batch)", end="\r")
add("vainf_deeplab", lambda r, i: f"Epoch {epoch(i) + 1}, Itrs {10 * i + 10}/30000, Loss={r.loss[i]:f}", each(10), "Loss")
add("hrnet", lambda r, i: f"{time(i)},123 Epoch: [{epoch(i)}/484] Iter:[{10 * batch(i)}/200], Time: 0.52, lr: [{r.rate[i]}], Loss: {r.loss[i]:.6f}", batches_from_0(10), "Loss")
add("semseg", lambda r, i: f"[{time(i)},123 INFO train.py line 286 12345] Epoch: [{epoch(i) + 1}/100][{10 * batch(i) + 10}/200] Data 0.001 (0.012) Batch 0.512 (0.523) "
    f"Remain 12:03:04 MainLoss {r.loss[i]:.4f} AuxLoss {0.4 * r.val[i]:.4f} Loss {r.loss[i]:.4f} Accuracy {r.accuracy[i]:.4f}.", batches(10), "Loss")
add("centernet", lambda r, i: f"ctdet/coco |####    | train: [{epoch(i) + 1}][{10 * batch(i)}/200]|Tot: 0:00:10 |ETA: 0:12:03 |loss {r.loss[i]:.4f} |hm_loss {0.7 * r.loss[i]:.4f} |"
    f"wh_loss {0.3 * r.val[i]:.4f} |Data 0.001s(0.012s) |Net 0.512s", batches_from_0(10), end="\r")
add("efficientdet", lambda r, i: bar(i, f"Step: {i}. Epoch: 0/500. Iteration: {i + 1}/{ROWS}. Cls loss: {0.6 * r.loss[i]:.5f}. Reg loss: {0.4 * r.val[i]:.5f}. Total loss: {r.loss[i]:.5f}: "),
    each(1, 0), "Total loss", end="\r")
add("retinanet", lambda r, i: f"Epoch: {epoch(i)} | Iteration: {10 * batch(i)} | Classification loss: {0.6 * r.loss[i]:1.5f} | Regression loss: {0.4 * r.val[i]:1.5f} | "
    f"Running loss: {r.loss[i]:1.5f}", batches_from_0(10), "Running loss")
add("ssd", lambda r, i: f"timer: 0.1234 sec.\niter {10 * i} || Loss: {r.loss[i]:.4f} || ", each(10, 0), "Loss", end="")
add("faster_rcnn", lambda r, i: f"[session 1][epoch {epoch(i) + 1:2d}][iter {100 * batch(i):4d}/2000] loss: {r.loss[i]:.4f}, lr: {r.rate[i]:.2e}\n\t\t\tfg/bg=(12/244), "
    f"time cost: 51.234567\n\t\t\trpn_cls: {0.2 * r.loss[i]:.4f}, rpn_box: 0.1012, rcnn_cls: {0.7 * r.loss[i]:.4f}, rcnn_box 0.3012", batches_from_0(100))
add("text_recognition", lambda r, i: f"[{100 * i + 100}/300000] Train loss: {r.loss[i]:0.5f}, Valid loss: {r.val[i]:0.5f}, Elapsed_time: {12.3 + i:0.5f}", each(100), "Train loss")
add("kair", lambda r, i: f"{time(i)[2:]}.123 : <epoch:{epoch(i):3d}, iter:{200 * i + 200:8,d}, lr:{r.rate[i]:.3e}> G_loss: {r.loss[i]:.3e} ", each(200), "G_loss", judged=False)
add("edsr", lambda r, i: f"[{160 * i + 160}/19200]\t[L1: {r.loss[i]:.4f}]\t1.2+0.1s", each(160), "L1", judged=False)
add("nerf", lambda r, i: f"[TRAIN] Iter: {100 * i + 100} Loss: {r.loss[i]}  PSNR: {20 + r.accuracy[i]}", each(100), "Loss")
add("torch_ngp", lambda r, i: f"loss={r.loss[i]:.4f} ({r.val[i]:.4f}), lr={r.rate[i]:.6f}: : {(i + 1) / 1.2:3.0f}% {i + 1}/{ROWS} [00:01<00:09,  9.12it/s]", each(), end="\r")
add("pointnet2", lambda r, i: f"{time(i)},123 - Model - INFO - **** Epoch {i + 1} ({i + 1}/{ROWS}) ****\n{time(i)},125 - Model - INFO - Learning rate:{r.rate[i]:f}\n"
    f"{time(i)},523 - Model - INFO - Training mean loss: {r.loss[i]:f}\n{time(i)},524 - Model - INFO - Training accuracy: {r.accuracy[i]:f}", each(), "Training mean loss")
add("pointnet", lambda r, i: f"[{epoch(i)}: {10 * batch(i)}/200] train loss: {r.loss[i]:f} accuracy: {r.accuracy[i]:f}", batches_from_0(10), "train loss")
add("openpcdet", lambda r, i: f"{time(i)},123   INFO  Train: {epoch(i) + 1:4d}/80 ({epoch(i):3d}%) [{50 * batch(i):4d}/1000 ({5 * batch(i):3d}%)]  Loss: {r.loss[i]:.4g} ({r.val[i]:.3g})  "
    f"LR: {r.rate[i]:.3e}  Time cost: 00:10/1:02:03 [00:12/2:02:03]  Acc_iter {50 * i + 1}  Data time: 0.01(0.02)", batches_from_0(50), "Loss")
add("bubbliiiing_yolo", lambda r, i: f"Epoch:{i + 1}/{ROWS}\nTotal Loss: {r.loss[i]:.3f} || Val Loss: {r.val[i]:.3f} ", each(), "Total Loss")
add("biggan", lambda r, i: f"\r{i + 1}/{ROWS} ({(i + 1) / 1.2:6.2f}%) [{'=' * (i // 12):<10}] (ETA: 1:02:03) itr: {i + 1}, G_loss : {r.val[i]:+4.3f}, D_loss_real : {r.loss[i]:+4.3f}, "
    f"D_loss_fake : {r.val[i]:+4.3f}", each(), "D_loss_real", judged=False, end="")
add("cyclegan", lambda r, i: f"(epoch: {epoch(i) + 1}, iters: {100 * batch(i) + 100}, time: 0.512, data: 0.212) D_A: 0.312 G_A: 0.412 cycle_A: {r.loss[i]:.3f} idt_A: {0.4 * r.val[i]:.3f} ",
    batches(100), "cycle_A", judged=False)
add("stargan", lambda r, i: f"Elapsed [0:00:{i % 60:02d}], Iteration [{10 * i + 10}/200000], D/loss_real: {-r.val[i]:.4f}, D/loss_fake: {r.val[i]:.4f}, G/loss_rec: {r.loss[i]:.4f}",
    each(10), "G/loss_rec", judged=False)
add("dcgan", lambda r, i: f"[{epoch(i)}/25][{50 * batch(i)}/1000] Loss_D: {r.loss[i]:.4f} Loss_G: {r.val[i]:.4f} D(x): 0.5123 D(G(z)): 0.4123 / 0.3123", batches_from_0(50), "Loss_D", judged=False)
add("pytorch_gan", lambda r, i: f"[Epoch {epoch(i)}/200] [Batch {10 * batch(i)}/200] [D loss: {r.loss[i]:f}] [G loss: {r.val[i]:f}]", batches_from_0(10), "D loss", judged=False)
add("chainer", lambda r, i: f"{i + 1:<10d}  {r.loss[i]:<10.6g}  {r.val[i]:<20.6g}  {r.accuracy[i]:<13.6g}  {12.3 + i:<12.6g}", each(), "main/loss",
    head="epoch       main/loss   validation/main/loss  main/accuracy  elapsed_time\n")
add("lasagne", lambda r, i: f"Epoch {i + 1} of {ROWS} took 1.234s\n  training loss:\t\t{r.loss[i]:.6f}\n  validation loss:\t\t{r.val[i]:.6f}\n  validation accuracy:\t\t{100 * r.accuracy[i]:.2f} %",
    each(), "training loss")
add("cntk", lambda r, i: f"Finished Epoch[{i + 1} of {ROWS}]: [Training] loss = {r.loss[i]:.6f} * 10000, metric = {100 * (1 - r.accuracy[i]):.2f}% * 10000 1.234s (8103.7 samples/s);", each())
add("neon", lambda r, i: f"Epoch {i:<3d} [Train |{'█' * 20}|  468/468  batches, {r.loss[i]:.2f} cost, 1.23s]", each(1, 0), "cost")
add("torchbearer", lambda r, i: f"{i}/{ROWS}(t): 100%|██████████| 391/391 [00:10<00:00, 36.12it/s, acc={r.accuracy[i]:.4f}, loss={r.loss[i]:.4f}]", lambda i: 391 * (i + 1))
add("poutyne", lambda r, i: f"Epoch: {i + 1:3d}/{ROWS} Train steps: 100 Val steps: 20 1.23s loss: {r.loss[i]:f} acc: {100 * r.accuracy[i]:f} val_loss: {r.val[i]:f} val_acc: {100 * r.accuracy[i]:f}", each(100))
add("tf_models", lambda r, i: f"I0514 03:22:10.123456 139812345 controller.py:462] train | step: {100 * i + 100:6d} | steps/sec:   12.3 | output: \n"
    f"    {{'learning_rate': {r.rate[i]}, 'training_loss': {r.loss[i]}}}", each(100), "training_loss")

# Graphs, recommenders, time series, science.
add("ogb", lambda r, i: f"Run: 01, Epoch: {i + 1:02d}, Loss: {r.loss[i]:.4f}, Train: {100 * r.accuracy[i]:.2f}%, Valid: {98 * r.accuracy[i]:.2f}%, Test: {97 * r.accuracy[i]:.2f}%", each(), "Loss")
add("pygcn", lambda r, i: f"Epoch: {i + 1:04d} loss_train: {r.loss[i]:.4f} acc_train: {r.accuracy[i]:.4f} loss_val: {r.val[i]:.4f} acc_val: {r.accuracy[i]:.4f} time: 0.0123s", each(), "loss_train")
add("gat", lambda r, i: f"Training: loss = {r.loss[i]:.5f}, acc = {r.accuracy[i]:.5f} | Val: loss = {r.val[i]:.5f}, acc = {r.accuracy[i]:.5f}", each())
add("rotate", lambda r, i: f"{time(i)},123 INFO     Training average positive_sample_loss at step {100 * i}: {r.val[i]:f}\n"
    f"{time(i)},123 INFO     Training average loss at step {100 * i}: {r.loss[i]:f}", each(100, 0), "Training average loss")
add("pykeen", lambda r, i: bar(i, "Training epochs on cuda:0: ", f"loss={r.loss[i]:.3g}, prev_loss={r.val[i]:.3g}").replace("it/s", "epoch/s"), each(), end="\r")
add("dglke", lambda r, i: f"[proc 0][Train]({100 * i + 100}/12000) average pos_loss: {r.loss[i]}", each(100), "average pos_loss")
add("gluonts", lambda r, i: f"100%|██████████| 50/50 [00:03<00:00, 14.12it/s, epoch={i + 1}/{ROWS}, avg_epoch_loss={r.loss[i]:.3g}]", lambda i: 50 * (i + 1), "avg_epoch_loss")
add("informer", lambda r, i: f"\titers: 100, epoch: {i + 1} | loss: {r.val[i]:.7f}\n\tspeed: 0.0412s/iter; left time: 12.3456s\nEpoch: {i + 1} cost time: 10.123456789\n"
    f"Epoch: {i + 1}, Steps: 100 | Train Loss: {r.loss[i]:.7f} Vali Loss: {r.val[i]:.7f} Test Loss: {r.val[i]:.7f}", lambda i: 100 * (i + 1), "Train Loss")
add("deepctr", lambda r, i: f"Epoch {i + 1}/{ROWS}\n12s - loss: {r.loss[i]: .4f} - binary_crossentropy: {r.loss[i]: .4f} - val_auc: {r.accuracy[i]: .4f}", each())
add("recbole", lambda r, i: f"Tue 14 May 2024 03:22:10 INFO  epoch {i} training [time: 1.23s, train loss: {r.loss[i]:.4f}]\n"
    f"Tue 14 May 2024 03:22:12 INFO  epoch {i} evaluating [time: 0.12s, valid_score: {r.accuracy[i]:.6f}]", each(1, 0), "train loss")
add("dlrm", lambda r, i: f"Finished training it {1024 * i + 1024}/122880 of epoch 0, 12.34 ms/it, loss {r.loss[i]:.6f}", each(1024))
add("ncf", lambda r, i: f"Iteration {i} [10.1 s]: HR = {r.accuracy[i]:.4f}, NDCG = {0.6 * r.accuracy[i]:.4f}, loss = {r.loss[i]:.4f} [1.2 s]", each(1, 0))
add("ngcf", lambda r, i: f"Epoch {i} [10.1s]: train==[{r.loss[i]:.5f}={r.val[i]:.5f} + 0.00012]", each(1, 0), "train")
add("lightgcn", lambda r, i: f"EPOCH[{i + 1}/{ROWS}] loss{r.loss[i]:.3f}-|Sample:12.31|", each())
add("hugectr", lambda r, i: f"[HCTR][03:22:10.123][INFO][RK0][main]: Iter: {100 * i + 100} Time(100 iters): 1.231s Loss: {r.loss[i]:.6f} lr:{r.rate[i]:.6f}", each(100), "Loss")
add("vowpal_wabbit", lambda r, i: f"{r.val[i]:.6f} {r.loss[i]:.6f} {100 * i + 100:12d} {100 * i + 100:14.1f} {'unknown' if i % 7 == 0 else '1.0000':>8} {r.val[i]:8.4f} {51:8d}", each(100),
    "loss since last", head="Num weight bits = 18\nlearning rate = 0.5\npower_t = 0.5\nusing no cache\nReading datafile = train.dat\nnum sources = 1\n"
    "average  since         example        example  current  current  current\nloss     last          counter         weight    label  predict features\n")
add("nequip", lambda r, i: f"{epoch(i) + 1:7d} {batch(i) + 1:5d} {r.loss[i]:12.4g} {0.8 * r.loss[i]:12.4g} {0.2 * r.val[i]:12.4g}", batches(), head="# Epoch batch         loss       loss_f       loss_e\n")
add("deepmd", lambda r, i: f"{100 * i:9d} {r.val[i]:.2e} {r.loss[i]:.2e} {0.1 * r.val[i]:.2e} {r.rate[i]:.1e}", each(100, 0), "rmse_trn", file="lcurve.out",
    head="#  step      rmse_val    rmse_trn    rmse_e_trn         lr\n")
add("schnetpack", lambda r, i: f"{1715000000.5 + 12.25 * i},{r.rate[i]},{r.loss[i]},{r.val[i]}", each(), "Train loss", file="log.csv", head="Time,Learning rate,Train loss,Validation loss\n")
add("modulus", lambda r, i: f"[{time(i)[11:]}] - [step: {100 * i:10d}] loss: {r.loss[i]:10.3e}, time/iteration: {12.34:10.3e} ms", each(100, 0))
add("deepxde", lambda r, i: f"{1000 * i:<9d} [{r.loss[i]:.2e}, {0.1 * r.val[i]:.2e}]    [{r.val[i]:.2e}, {0.1 * r.val[i]:.2e}]    []  ", each(1000, 0), "Train loss",
    head="Step      Train loss              Test loss               Test metric\n")
add("neuraloperator", lambda r, i: f"[{i}] time=12.34, avg_loss={r.loss[i]:.4f}, train_err={r.loss[i]:.4f}", each(1, 0), "avg_loss")
add("pinn", lambda r, i: f"It: {10 * i}, Loss: {r.loss[i]:.3e}, Time: 0.12", each(10, 0), "Loss")
add("pyro", lambda r, i: f"[iteration {50 * i + 1:04d}] loss: {r.loss[i]:.4f}", lambda i: 50 * i + 1)
add("numpyro", lambda r, i: bar(i, "", f"init loss: 12.3456, avg. loss [1-{i + 1}]: {r.loss[i]:.4f}"), each(), "avg. loss", end="\r")
add("gpytorch", lambda r, i: f"Iter {i + 1}/{ROWS} - Loss: {r.loss[i]:.3f}   lengthscale: 0.693   noise: 0.693", each(), "Loss")

# Games, trees, other languages.
add("acme", lambda r, i: f"[Learner] Critic Loss = {r.loss[i]:.3f} | Learner Steps = {100 * i + 100} | Learner Walltime = {12.3 + i:.3f} | Policy Loss = {-r.val[i]:.3f}",
    each(100), "Critic Loss", judged=False)
add("dreamer", lambda r, i: f"[{1000 * i + 1000}] kl_loss {0.5 * r.val[i]:.1f} / image_loss {r.loss[i]:.3f} / reward_loss {0.5 * r.val[i]:.1f} / fps 12.3", each(1000), "image_loss")
add("lightgbm_cli", lambda r, i: f"[LightGBM] [Info] Iteration:{i + 1}, training l2 : {r.loss[i]:.6g}\n[LightGBM] [Info] Iteration:{i + 1}, valid_1 l2 : {r.val[i]:.6g}\n"
    f"[LightGBM] [Info] 0.123456 seconds elapsed, finished iteration {i + 1}", each(), "training l2")
add("autogluon", lambda r, i: f"[{50 * i + 50}]\tvalid_set's rmse: {r.loss[i]:.6g}", each(50), "valid_set's rmse")
add("tabnet", lambda r, i: f"epoch {i:<3d}| loss: {r.loss[i]:<7.5f} | val_0_auc: {r.accuracy[i]:<7.5f} |  0:00:01s", each(1, 0))
add("ngboost", lambda r, i: f"[iter {10 * i}] loss={r.loss[i]:.4f} val_loss=0.0000 scale=1.0000 norm={r.norm[i]:.4f}", each(10, 0))
add("lbfgs", lambda r, i: f"\nAt iterate {i:4d}    f= {r.loss[i]:12.5E}".replace("E", "D") + f"    |proj g|= {0.01 * r.val[i]:12.5E}".replace("E", "D"), each(1, 0), file="out.txt")
add("r_nnet", lambda r, i: f"iter {10 * i:4d} value {100 * r.loss[i]:f}", each(10, 0), file="out.txt", head="# weights:  123\ninitial  value 231.123456 \n")
add("r_luz", lambda r, i: f"Epoch {i + 1}/{ROWS}\nTrain metrics: Loss: {r.loss[i]:.4f} - Acc: {r.accuracy[i]:.4f}\nValid metrics: Loss: {r.val[i]:.4f} - Acc: {r.accuracy[i]:.4f}", each(), "Loss")
add("julia_progress", lambda r, i: f"\rProgress: {(i + 1) / 1.2:3.0f}%|{'█' * (i // 6)}{' ' * (20 - i // 6)}|  ETA: 0:00:10\n  epoch:  {i + 1}\n  loss:   {r.loss[i]:.6f}", each())
add("julia_flux", lambda r, i: f"[ Info: Epoch {i + 1}: loss = {'NaN32' if r.loss[i] != r.loss[i] else format(r.loss[i], '.6f') + 'f0'}, acc = {r.accuracy[i]:.3f}", each())
add("dl4j", lambda r, i: f"03:22:10.123 [main] INFO org.deeplearning4j.optimize.listeners.ScoreIterationListener - Score at iteration {10 * i} is {'NaN' if r.loss[i] != r.loss[i] else r.loss[i]}",
    each(10, 0))
add("tribuo", lambda r, i: f"May 14, 2024 3:22:10 AM org.tribuo.common.sgd.AbstractSGDTrainer train\nINFO: At iteration {100 * i + 100}, average loss = {r.loss[i]}", each(100), "average loss")
add("libtorch_mnist", lambda r, i: f"\rTrain Epoch: {epoch(i) + 1} [{640 * batch(i) + 640:5d}/12800] Loss: {r.loss[i]:.4f}", batches(640), "Loss", end="")
add("libtorch_dcgan", lambda r, i: f"\r[{epoch(i) + 1:2d}/30][{50 * batch(i) + 50:3d}/1000] D_loss: {r.loss[i]:.4f} | G_loss: {r.val[i]:.4f}", batches(50), "D_loss", judged=False, end="")
add("dlib", lambda r, i: f"step#: {100 * i:<8d} learning rate: {r.rate[i]:<8.4g} average loss: {r.loss[i]:<12.6g} steps without apparent progress: {i % 7}", each(100, 0), "average loss")
add("matlab", lambda r, i: f"|  {epoch(i) + 1:6d} | {50 * i + 50:11d} | {'00:00:%02d' % (i % 60):>14s} | {100 * r.accuracy[i]:11.2f}% | {r.loss[i]:12.4f} | {r.rate[i]:15.4e} |",
    each(50), "Mini-batch Loss", file="matlab.txt", head="|" + "=" * 88 + "|\n|  Epoch  |  Iteration  |  Time Elapsed  |  Mini-batch  |  Mini-batch  |  Base Learning  |\n"
    "|         |             |   (hh:mm:ss)   |   Accuracy   |     Loss     |      Rate       |\n|" + "=" * 88 + "|\n")
add("matlab_trainnet", lambda r, i: f"    {50 * i + 50:9d}    {epoch(i) + 1:5d}    {'00:00:%02d' % (i % 60):>11s}    {r.rate[i]:9.4g}    {r.loss[i]:12.5g}    {r.val[i]:14.5g}", each(50), "TrainingLoss",
    file="matlab.txt", head="    Iteration    Epoch    TimeElapsed    LearnRate    TrainingLoss    ValidationLoss\n    _________    _____    ___________    _________    ____________    ______________\n")
add("mlnet", lambda r, i: f"Phase: Training, Dataset used:      Train, Batch Processed Count:  100, Learning Rate: {r.rate[i]:.7f} Epoch: {i:3d}, Accuracy: {r.accuracy[i]:.7f}, Cross-Entropy: {r.loss[i]:.7f}",
    each(1, 0), "Cross-Entropy")
add("torchsharp", lambda r, i: f"\rTrain: epoch {epoch(i) + 1} [{640 * batch(i) + 640} / 12800] Loss: {r.loss[i]:.4f}", batches(640), "Loss", end="")
add("candle", lambda r, i: f"{i + 1:4d} train loss: {r.loss[i]:8.5f} test acc: {100 * r.accuracy[i]:5.2f}%", each(), "train loss")
add("tch", lambda r, i: f"epoch: {i + 1:4d} train loss: {r.loss[i]:8.5f} test acc: {100 * r.accuracy[i]:5.2f}%", each(), "train loss")
add("tfjs", lambda r, i: f"Epoch {i + 1} / {ROWS}\neta=0.0 ====================================> \n1234ms 45us/step - acc={r.accuracy[i]:.4f} loss={r.loss[i]:.4f} val_acc={r.accuracy[i]:.4f} val_loss={r.val[i]:.4f} ", each())
add("brain_js", lambda r, i: f"iterations: {100 * i + 100}, training error: {r.loss[i]}", each(100), "training error", judged=False)
add("fann", lambda r, i: f"Epochs     {100 * i + 100:8d}. Current error: {r.loss[i]:.10f}. Bit fail {i % 5}.", each(100), "Current error", judged=False)
add("mllog", lambda r, i: ":::MLLOG " + json.dumps({"namespace": "", "time_ms": 1715650000123 + i, "event_type": "POINT_IN_TIME", "key": "train_loss", "value": r.loss[i],
    "metadata": {"file": "train.py", "lineno": 12, "step_num": 10 * i + 10}}), each(10), "train_loss")
add("dllogger", lambda r, i: "DLLL " + json.dumps({"timestamp": "1715650000.1", "elapsedtime": "1.2", "datetime": "2024-05-14 03:22:10.1", "type": "LOG", "step": [0, 10 * i + 10],
    "data": {"train_loss": r.loss[i], "lr": r.rate[i]}}), each(10), "data/train_loss")
add("basicsr", lambda r, i: f"{time(i)},123 INFO: [EDSR_..][epoch:{epoch(i):3d}, iter:{100 * i + 100:8,d}, lr:({r.rate[i]:.3e},)] [eta: 1 day, 2:03:04, time (data): 0.512 (0.012)] l_pix: {r.loss[i]:.4e} ",
    each(100), "l_pix")
add("deepmd_console", lambda r, i: f"[{time(i)},123] DEEPMD INFO    batch {100 * i:7d}: trn: rmse = {r.loss[i]:.2e}, rmse_e = {0.1 * r.val[i]:.2e}, lr = {r.rate[i]:.2e}", each(100, 0), "rmse")
add("catalyst", lambda r, i: f"train ({i + 1}/{ROWS}) accuracy01: {r.accuracy[i]} | loss: {r.loss[i]} | lr: {r.rate[i]} | momentum: 0.9\nvalid ({i + 1}/{ROWS}) accuracy01: {r.accuracy[i]} | loss: {r.val[i]}", each())
add("nnunet", lambda r, i: f"{time(i)}.123456: Epoch {i}\n{time(i)}.123999: Current learning rate: {r.rate[i]:.5f}\n{time(i)}.223456: train_loss {r.loss[i] - 1:.4f}\n"
    f"{time(i)}.223466: val_loss {r.val[i] - 1:.4f}\n{time(i)}.223476: Pseudo dice [0.9012, 0.8123]\n{time(i)}.223486: Epoch time: 100.12 s", each(1, 0), "train_loss")
add("nnunet1", lambda r, i: f"{time(i)}.123456: \nepoch:  {i}\n{time(i)}.223456: train loss : {r.loss[i] - 1:.4f}\n{time(i)}.223466: validation loss: {r.val[i] - 1:.4f}\n"
    f"{time(i)}.223476: Average global foreground Dice: [0.9]\n{time(i)}.223486: lr: {r.rate[i]:.6f}", each(1, 0), "train loss")
add("gluoncv", lambda r, i: f"[Epoch {epoch(i)}][Batch {50 * batch(i) + 49}], Speed: 12.345 samples/sec, CrossEntropy={r.loss[i]:.3f}, SmoothL1={0.4 * r.val[i]:.3f}",
    lambda i: epoch(i) * 999 + 50 * batch(i) + 49, "CrossEntropy")
add("keras3_joined", lambda r, i: f"Epoch {i + 1}/{ROWS}\n" + "".join(f"{b:3d}/782 ━━━━━━━━━━━━━━━━━━━━ 4s 5ms/step - accuracy: {r.accuracy[i]:.4f} - loss: {r.loss[i]:.4f}" for b in (1, 400, 782))
    + f" - val_loss: {r.val[i]:.4f}", each())
add("keras3_backspaces", lambda r, i: f"Epoch {i + 1}/{ROWS}\n" + ("\b" * 90).join(f"{b:3d}/782 ━━━━━━━━━━━━━━━━━━━━ 4s 5ms/step - accuracy: {r.accuracy[i]:.4f} - loss: {r.loss[i]:.4f}" for b in (1, 400, 782))
    + f" - val_loss: {r.val[i]:.4f}", each())
add("sovits", lambda r, i: f"{time(i)},123\t44k\tINFO\tTrain Epoch: {epoch(i) + 1} [{5 * batch(i)}%]\n{time(i)},123\t44k\tINFO\tLosses: [2.31, 2.52, 9.12, {r.loss[i]}, 1.23], step: {200 * i + 200}, "
    f"lr: {r.rate[i]!r}, reference_loss: {r.loss[i]}", each(200), "reference_loss")

# Detectors, frameworks of reinforcement learning and federated trainers whose newest consoles differ from the older ones.
HEAVY, LIGHT = "\u2501", "\u2500"
for name, bars in (("", (100,)), ("_redrawn", (0, 16, 100))):
    for erase in ("", "\x1b[K"):
        add(f"ultralytics_thin{name}{'_erased' if erase else ''}", lambda r, i, bars=bars, erase=erase: "\n      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n" + "\r".join(
            f"{erase}{i + 1:>7}/{ROWS}      2.61G {r.loss[i]:10.4g} {r.val[i]:10.4g} {1.2:10.4g} {23:10d} {640:10d}: {done}% {HEAVY * (done // 9)}{LIGHT * (11 - done // 9)} {59 * done // 100}/59 4.7it/s 12.5s"
            for done in bars) + f"\n{erase}                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100% {HEAVY * 12} 4/4 5.1it/s 0.8s", each(), "box_loss")
add("nemo_rl", lambda r, i: f"========================= Step {i + 1}/{ROWS} =========================\n\u25b6 Preparing batch...\n\u25b6 Training policy...\n\n\U0001f4ca Training Results:\n  \u2022 Loss: {r.loss[i]:.4f}\n"
    f"  \u2022 Avg Reward: {0.3 + i / 300 + 0.02 * (i % 3):.4f}\n\n\u23f1\ufe0f  Timing:\n  \u2022 Total step time: 45.12s", each(), "Loss")
add("areal", lambda r, i: f"{time(i)}.123 areal INFO: Epoch {epoch(i) + 1}/6 Step {batch(i) + 1}/20 Train step {i + 1}/{ROWS} done.\n{time(i)}.123 areal INFO: Stats (1/1): \n\u250c{LIGHT * 12}\u252c{LIGHT * 12}\u2510\n"
    f"\u2502 loss/avg    \u2502 {r.loss[i]:.4e} \u2502\n\u2502 grad_norm   \u2502 {r.norm[i]:.4e} \u2502\n\u2514{LIGHT * 12}\u2534{LIGHT * 12}\u2518", batches(), "loss/avg")
for of_row in (1, 4):  # pairs of a name and a value
    add(f"areal_grid_{of_row}", lambda r, i, of_row=of_row: f"{time(i)}.123 StatsLogger INFO: Epoch {epoch(i) + 1}/6 Step {batch(i) + 1}/20 Train step {i + 1}/{ROWS} done.\n"
        f"{time(i)}.123 StatsLogger INFO: Stats (1/1):\n{time(i)}.123 StatsLogger INFO: \n" + console_forms.fancy_grid(
            {"ppo_actor/task_reward/avg": 0.2 + i / 300, "ppo_actor/update/loss/avg": r.loss[i], "ppo_actor/update/grad_norm": r.norm[i], "ppo_actor/update/lr": r.rate[i],
             "timeperf/rollout": 31.5, "timeperf/train_step": 12.0 + i % 3, "ppo_actor/n_valid_tokens": 4096.0}, of_row), batches(), "ppo_actor/update/loss/avg", judged=False)
add("big_dl", lambda r, i: f"{time(i)} INFO  DistriOptimizer$:{400 + i} - [Epoch 1 {128 * i}/60000][Iteration {i + 1}][Wall Clock {i}.1s] Trained 128.0 records in 0.1 seconds. Throughput is 1234.5 records/second. "
    f"Loss is {r.loss[i]:.4f}. ", each(), "Loss")
add("hivemind", lambda r, i: f"Jun 01 12:{i // 60:02d}:{i % 60:02d}.123 [INFO] [__main__.on_step_end:153] Step #{i}\nJun 01 12:{i // 60:02d}:{i % 60:02d}.124 [INFO] [__main__.on_step_end:154] Your current contribution: 100 samples\n"
    f"Jun 01 12:{i // 60:02d}:{i % 60:02d}.125 [INFO] [__main__.on_step_end:157] Local loss: {r.loss[i]:.5f}", each(1, 0), "Local loss")

# Federated training (Flower): rounds, and the history that is printed at the end.
add("flower_progress", lambda r, i: f"INFO :      [ROUND {i + 1}]\nINFO :      configure_fit: strategy sampled 2 clients (out of 2)\nINFO :      aggregate_fit: received 2 results and 0 failures\n"
    f"INFO :      fit progress: ({i + 1}, {r.loss[i]!r}, {{'accuracy': {r.accuracy[i]:.4f}}}, {3.25 * i + 3.2})", each())
add("flower_progress_old", lambda r, i: f"INFO flwr {time(i)},123 | server.py:125 | fit progress: ({i + 1}, {r.loss[i]!r}, {{'accuracy': {r.accuracy[i]:.4f}}}, {3.25 * i + 3.2})", each())
FLOWER_RUN = "INFO :      Starting Flower simulation\nINFO :      [INIT]\n" + "".join(
    f"INFO :      [ROUND {i}]\nINFO :      configure_fit: strategy sampled 2 clients (out of 2)\nINFO :      aggregate_fit: received 2 results and 0 failures\n" for i in range(1, ROWS + 1))
add("flower_history", lambda r, i: f"INFO :      \t\tround {i + 1}: {r.loss[i]!r}", each(), head=FLOWER_RUN + "INFO :      [SUMMARY]\nINFO :      Run finished 120 round(s) in 15.08s\n"
    "INFO :      \tHistory (loss, distributed):\n")
FORMS.whole("flower_histories", lambda r: "INFO :      [SUMMARY]\nINFO :      Run finished 120 round(s) in 15.08s\n" + "".join(
    f"INFO :      \tHistory (loss, {side}):\n" + "".join(f"INFO :      \t\tround {i + 1}: {losses[i]!r}\n" for i in range(ROWS)) for side, losses in (("distributed", r.loss), ("centralized", r.val)))
    + "INFO :      \tHistory (metrics, distributed, evaluate):\nINFO :      \t{'accuracy': [" + ", ".join(f"({i + 1}, {r.accuracy[i]:.4f})" for i in range(ROWS)) + "]}\n", each())
add("flower_records", lambda r, i: f"INFO :      \nINFO :      [ROUND {i + 1}/{ROWS}]\nINFO :      configure_train: Sampled 5 nodes (out of 10)\nINFO :      aggregate_train: Received 5 results and 0 failures\n"
    f"INFO :      \t\u2514\u2500\u2500> Aggregated MetricRecord: {{'train_loss': {r.loss[i]!r}}}\nINFO :      configure_evaluate: Sampled 10 nodes (out of 10)\nINFO :      aggregate_evaluate: Received 10 results and 0 failures\n"
    f"INFO :      \t\u2514\u2500\u2500> Aggregated MetricRecord: {{'eval_loss': {r.val[i]!r}, 'eval_acc': {r.accuracy[i]:.4f}}}", each(), "train_loss")

# Speech: Coqui TTS, and Kaldi, whose objective is a log-likelihood.
COQUI_EVALUATION = "\n\x1b[1m > EVALUATION \x1b[0m\n\n\x1b[1m   --> STEP: 0\x1b[0m\n     | > loss: {0:.5f}  ({0:.5f})\n\n  \x1b[1m--> EVAL PERFORMANCE\x1b[0m\n     | > avg_loader_time:\x1b[92m 0.00345 \x1b[0m(-0.00012)\n" \
    "     | > avg_loss:\x1b[91m {0:.5f} \x1b[0m(+0.01234)\n\n"
for name, evaluation in (("", False), ("_evaluated", True)):
    add(f"coqui{name}", lambda r, i, evaluation=evaluation: (f"\x1b[4m\x1b[1m > EPOCH: {epoch(i)}/1000\x1b[0m\n --> /data/run-May-14\n\n\x1b[1m > TRAINING ({time(i)}) \x1b[0m\n" if batch(i) == 0 else "")
        + f"\n\x1b[1m   --> TIME: {time(i)} -- STEP: {25 * batch(i) + 24}/520 -- GLOBAL_STEP: {25 * i + 25}\x1b[0m\n     | > loss: {r.loss[i]:.5f}  ({r.val[i]:.5f})\n     | > log_mle: {0.5 * r.val[i]:.5f}  ({0.5 * r.val[i]:.5f})\n"
        f"     | > grad_norm: {r.norm[i]:.5f}  ({r.norm[i]:.5f})\n     | > current_lr: {r.rate[i]:.6f} \n     | > step_time: 0.9612  (0.9511)\n" + (COQUI_EVALUATION.format(r.val[i]) if evaluation and batch(i) == 19 else ""),
        each(25))
add("vits_blocks", lambda r, i: f"\n --> STEP: {batch(i)}/406 -- GLOBAL_STEP: {i + 1}\n     | > loss_disc: 2.51234  (2.51234)\n     | > loss_mel: {r.loss[i]:.5f}  ({r.val[i]:.5f})\n     | > amp_scaler: 1024.00000  (1024.00000)", each(), "loss_mel")
KALDI = "nnet3-train[5.5.1068~1-59299]"
add("kaldi_nnet3", lambda r, i: f"LOG ({KALDI}:PrintStatsForThisPhase():nnet-training.cc:378) Average objective function for 'output' for minibatches {100 * i}-{100 * i + 99} is {-r.loss[i]:.6g} over 12800 frames.",
    lambda i: 100 * i + 99, "objective function", judged=False)
add("kaldi_nnet3_two", lambda r, i: f"LOG ({KALDI}:PrintStatsForThisPhase():nnet-training.cc:378) Average objective function for 'output' for minibatches {10 * i}-{10 * i + 9} is {-r.loss[i]:.6g} over 1280 frames.\n"
    f"LOG ({KALDI}:PrintStatsForThisPhase():nnet-training.cc:378) Average objective function for 'output-xent' for minibatches {10 * i}-{10 * i + 9} is {-r.val[i]:.6g} over 1280 frames.", lambda i: 10 * i + 9,
    "objective function", judged=False)
add("kaldi_chain", lambda r, i: f"LOG (nnet3-chain-train[5.5]:PrintStatsForThisPhase():nnet-training.cc:371) Average objective function for 'output' for minibatches {100 * i}-{100 * i + 99} is {-r.loss[i]:.6g} + -0.0112 = {-r.loss[i] - 0.0112:.6g}"
    " over 12800 frames.", lambda i: 100 * i + 99, "objective function", judged=False)
