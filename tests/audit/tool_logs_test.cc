// Consoles of tools, a few literal lines each in the tool's own form: which points are read, and
// that a loss which is NaN in the last of them is seen at its step.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/audit/point_reading.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoints;
using testing::Recognises;

struct ToolLog {
  const char* name;  // of the file
  const char* text;
  const char* loss;    // a series
  const char* last;    // its last value as printed
  const char* points;  // "step series value", a line each
};

const ToolLog kToolLogs[] = {
    {"structlog.log",
     "2024-01-01T00:00:00Z [info     ] train_step      [trainer] epoch=0 grad_norm=0.5 loss=2.5 "
     "lr=0.001 step=0\n"
     "2024-01-01T00:00:01Z [info     ] train_step      [trainer] epoch=0 grad_norm=0.5 loss=2.25 "
     "lr=0.001 step=10\n",
     "loss", "2.25",
     "0 grad_norm 0.5\n"
     "0 loss 2.5\n"
     "0 lr 0.001\n"
     "10 grad_norm 0.5\n"
     "10 loss 2.25\n"
     "10 lr 0.001\n"},
    {"logfmt.log",
     "level=info loss=2.5 lr=0.001 msg=train step=0 ts=2024-01-01T00:00:00Z\n"
     "level=info loss=2.25 lr=0.001 msg=train step=10 ts=2024-01-01T00:00:00Z\n",
     "loss", "2.25",
     "0 loss 2.5\n"
     "0 lr 0.001\n"
     "10 loss 2.25\n"
     "10 lr 0.001\n"},
    {"loss_first.log",
     "loss=2.5 step=0\n"
     "loss=2.25 step=1\n",
     "loss", "2.25",
     "0 loss 2.5\n"
     "1 loss 2.25\n"},
    {"fairseq.log",
     "2024-05-02 10:00:00 | INFO | train_inner | epoch 001:    100 / 1000 loss=2.5, ppl=4.5, "
     "num_updates=100, lr=0.0001, gnorm=1.5, loss_scale=64, wall=20\n"
     "2024-05-02 10:00:00 | INFO | train_inner | epoch 001:    200 / 1000 loss=2.25, ppl=4.5, "
     "num_updates=200, lr=0.0001, gnorm=1.5, loss_scale=64, wall=20\n"
     "2024-05-02 10:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 8.5 | ppl "
     "360 | wps 1000 | num_updates 200 | best_loss 8.5\n",
     "loss", "2.25",
     "100 loss 2.5\n"
     "100 ppl 4.5\n"
     "100 lr 0.0001\n"
     "100 gnorm 1.5\n"
     "100 loss_scale 64\n"
     "100 wall 20\n"
     "200 loss 2.25\n"
     "200 ppl 4.5\n"
     "200 lr 0.0001\n"
     "200 gnorm 1.5\n"
     "200 loss_scale 64\n"
     "200 wall 20\n"
     "200 val/loss 8.5\n"
     "200 val/ppl 360\n"
     "200 val/wps 1000\n"
     "200 val/best_loss 8.5\n"},
    {"paddlenlp.log",
     "[2024-01-01 00:00:00,000] [    INFO] - loss: 2.5, learning_rate: 3e-05, global_step: 10, "
     "interval_runtime: 1.5, interval_steps_per_second: 0.75\n"
     "[2024-01-01 00:00:00,000] [    INFO] - loss: 2.25, learning_rate: 3e-05, global_step: 20, "
     "interval_runtime: 1.5, interval_steps_per_second: 0.75\n",
     "loss", "2.25",
     "10 loss 2.5\n"
     "10 learning_rate 3e-05\n"
     "10 interval_runtime 1.5\n"
     "10 interval_steps_per_second 0.75\n"
     "20 loss 2.25\n"
     "20 learning_rate 3e-05\n"
     "20 interval_runtime 1.5\n"
     "20 interval_steps_per_second 0.75\n"},
    {"insightface.log",
     "Training: 2024-01-01 00:00:00,123-Speed 1234.50 samples/sec   Loss 2.5   LearningRate 0.1000 "
     "  Epoch: 0   Global Step: 0   Fp16 Grad Scale: 65536   Required: 10 hours\n"
     "Training: 2024-01-01 00:00:00,123-Speed 1234.50 samples/sec   Loss 2.25   LearningRate "
     "0.1000   Epoch: 0   Global Step: 50   Fp16 Grad Scale: 65536   Required: 10 hours\n",
     "Loss", "2.25",
     "0 Loss 2.5\n"
     "0 LearningRate 0.1\n"
     "0 Fp16 Grad Scale 65536\n"
     "0 Required 10\n"
     "50 Loss 2.25\n"
     "50 LearningRate 0.1\n"
     "50 Fp16 Grad Scale 65536\n"
     "50 Required 10\n"},
    {"ms_swift.log",
     "{'loss': 2.5, 'token_acc': 0.5, 'grad_norm': 1.5, 'memory(GiB)': 20.5, "
     "'train_speed(iter/s)': 0.5, 'epoch': 0.5, 'global_step/max_steps': '5/1000', 'percentage': "
     "'0.50%'}\n"
     "{'loss': 2.25, 'token_acc': 0.5, 'grad_norm': 1.5, 'memory(GiB)': 20.5, "
     "'train_speed(iter/s)': 0.5, 'epoch': 0.5, 'global_step/max_steps': '10/1000', 'percentage': "
     "'0.50%'}\n",
     "loss", "2.25",
     "5 loss 2.5\n"
     "5 token_acc 0.5\n"
     "5 grad_norm 1.5\n"
     "5 memory(GiB) 20.5\n"
     "5 train_speed(iter/s) 0.5\n"
     "5 epoch 0.5\n"
     "10 loss 2.25\n"
     "10 token_acc 0.5\n"
     "10 grad_norm 1.5\n"
     "10 memory(GiB) 20.5\n"
     "10 train_speed(iter/s) 0.5\n"
     "10 epoch 0.5\n"},
    {"opennmt.log",
     "[2024-01-01 00:00:00,123 INFO] Step 50/100000; acc: 5.5; ppl: 20000.5; xent: 2.5; lr: "
     "0.00001; sents: 4000; bsz: 1200/1300/6; 1000/1100 tok/s;   10 sec;\n"
     "[2024-01-01 00:00:00,123 INFO] Step 100/100000; acc: 5.5; ppl: 20000.5; xent: 2.25; lr: "
     "0.00001; sents: 4000; bsz: 1200/1300/6; 1000/1100 tok/s;   10 sec;\n",
     "xent", "2.25",
     "50 acc 5.5\n"
     "50 ppl 20000.5\n"
     "50 xent 2.5\n"
     "50 lr 1e-05\n"
     "50 sents 4000\n"
     "100 acc 5.5\n"
     "100 ppl 20000.5\n"
     "100 xent 2.25\n"
     "100 lr 1e-05\n"
     "100 sents 4000\n"},
    {"timm.log",
     "Train: 0 [   0/ 100 (  0%)]  Loss: 2.5 (2.41)  Time: 0.5s,  2968.24/s  (0.350s, 2900.1/s)  "
     "LR: 1.000e-05  Data: 0.25 (0.020)\n"
     "Train: 0 [  50/ 100 ( 50%)]  Loss: 2.25 (2.41)  Time: 0.5s,  2968.24/s  (0.350s, 2900.1/s)  "
     "LR: 1.000e-05  Data: 0.25 (0.020)\n"
     "Test: [   0/48]  Time: 0.500 (0.500)  Loss:  0.9000 (0.9000)\n"
     "Test: [  48/48]  Time: 0.25 (0.200)  Loss:  0.8000 (0.8500)\n"
     "Train: 1 [   0/ 100 (  0%)]  Loss: 2.25 (2.41)\n",
     "Loss", "2.25",
     "0 Loss 2.5\n"
     "0 Time 0.5\n"
     "0 LR 1e-05\n"
     "0 Data 0.25\n"
     "50 Loss 2.25\n"
     "50 Time 0.5\n"
     "50 LR 1e-05\n"
     "50 Data 0.25\n"
     "50 val/Time 0.25\n"
     "50 val/Loss 0.8\n"
     "100 Loss 2.25\n"},
    {"mae.log",
     "Epoch: [0]  [   0/1251]  eta: 0:10:00  lr: 0.000001  loss: 2.5 (6.9500)  time: 0.5000  max "
     "mem: 10000\n"
     "Epoch: [0]  [  20/1251]  eta: 0:10:00  lr: 0.000001  loss: 2.25 (6.9500)  time: 0.5000  max "
     "mem: 10000\n"
     "Epoch: [0] Total time: 0:10:00 (0.5 s / it)\n"
     "Averaged stats: lr: 0.000001  loss: 6.9 (6.95)\n"
     "Test:  [ 0/50]  eta: 0:00:10  loss: 0.9 (0.9)\n"
     "Test:  [49/50]  eta: 0:00:00  loss: 0.8 (0.85)  acc1: 81.0 (80.5)\n"
     "* Acc@1 80.500 Acc@5 95.000 loss 0.850\n",
     "loss", "2.25",
     "0 lr 1e-06\n"
     "0 loss 2.5\n"
     "0 time 0.5\n"
     "0 max mem 10000\n"
     "20 lr 1e-06\n"
     "20 loss 2.25\n"
     "20 time 0.5\n"
     "20 max mem 10000\n"
     "20 val/loss 0.8\n"
     "20 val/acc1 81\n"
     "20 val/Acc@1 80.5\n"
     "20 val/Acc@5 95\n"
     "20 val/loss 0.85\n"},
    {"imagenet.log",
     "Epoch: [0][   1/5005]\tTime  0.25 ( 0.350)\tLoss 2.5000e+00 (6.95e+00)\tAcc@1   0.10 (  "
     "0.20)\n"
     "Epoch: [0][  11/5005]\tTime  0.25 ( 0.350)\tLoss 2.2500e+00 (6.95e+00)\tAcc@1   0.10 (  "
     "0.20)\n"
     "Epoch: [1][   1/5005]\tTime  0.25 ( 0.350)\tLoss 2.2500e+00 (6.95e+00)\n",
     "Loss", "2.2500e+00",
     "1 Time 0.25\n"
     "1 Loss 2.5\n"
     "1 Acc@1 0.1\n"
     "11 Time 0.25\n"
     "11 Loss 2.25\n"
     "11 Acc@1 0.1\n"
     "5006 Time 0.25\n"
     "5006 Loss 2.25\n"},
    {"mnist.log",
     "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.500000\n"
     "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.250000\n"
     "\n"
     "Test set: Average loss: 0.0512, Accuracy: 9836/10000 (98%)\n"
     "\n"
     "Train Epoch: 2 [0/60000 (0%)]\tLoss: 2.250000\n",
     "Loss", "2.250000",
     "0 Loss 2.5\n"
     "640 Loss 2.25\n"
     "640 val/loss 0.0512\n"
     "640 val/Accuracy 9836\n"
     "60000 Loss 2.25\n"},
    {"quickstart.log",
     "Epoch 1\n"
     "-------------------------------\n"
     "loss: 2.250000  [   64/60000]\n"
     "Test Error: \n"
     " Accuracy: 50.0%, Avg loss: 1.5 \n"
     "\n"
     "Epoch 2\n"
     "-------------------------------\n"
     "loss: 2.250000  [   64/60000]\n"
     "Test Error: \n"
     " Accuracy: 50.0%, Avg loss: 1.5 \n"
     "\n",
     "loss", "2.250000",
     "64 loss 2.25\n"
     "64 val/Accuracy 0.5\n"
     "64 val/Avg loss 1.5\n"
     "60064 loss 2.25\n"
     "60064 val/Accuracy 0.5\n"
     "60064 val/Avg loss 1.5\n"},
    {"tutorial.log",
     "[1,  2000] loss: 2.500\n"
     "[1,  4000] loss: 2.250\n"
     "[2,  2000] loss: 2.250\n",
     "loss", "2.250",
     "2000 loss 2.5\n"
     "4000 loss 2.25\n"
     "6000 loss 2.25\n"},
    {"transfer.log",
     "Epoch 0/24\n"
     "----------\n"
     "train Loss: 2.5 Acc: 0.7500\n"
     "val Loss: 1.5 Acc: 0.5000\n"
     "\n"
     "Epoch 1/24\n"
     "----------\n"
     "train Loss: 2.25 Acc: 0.7500\n"
     "val Loss: 1.5 Acc: 0.5000\n"
     "\n",
     "train Loss", "2.25",
     "0 train Loss 2.5\n"
     "0 train/Acc 0.75\n"
     "0 val Loss 1.5\n"
     "0 val/Acc 0.5\n"
     "1 train Loss 2.25\n"
     "1 train/Acc 0.75\n"
     "1 val Loss 1.5\n"
     "1 val/Acc 0.5\n"},
    {"mmengine.log",
     "2024/01/01 00:00:00 - mmengine - INFO - Epoch(train)   [1][  50/100]  lr: 1.0000e-02  eta: "
     "1:00:00  time: 0.5  loss: 2.5  loss_cls: 1.5\n"
     "2024/01/01 00:00:00 - mmengine - INFO - Epoch(train)   [1][ 100/100]  lr: 1.0000e-02  eta: "
     "1:00:00  time: 0.5  loss: 2.25  loss_cls: 1.5\n"
     "2024/01/01 00:00:00 - mmengine - INFO - Epoch(train)   [2][  50/100]  lr: 1.0000e-02  eta: "
     "1:00:00  time: 0.5  loss: 2.5  loss_cls: 1.5\n"
     "2024/01/01 00:00:00 - mmengine - INFO - Epoch(train)   [2][ 100/100]  lr: 1.0000e-02  eta: "
     "1:00:00  time: 0.5  loss: 2.25  loss_cls: 1.5\n"
     "2024/01/01 00:00:00 - mmengine - INFO - Epoch(val) [2][100/100]    coco/bbox_mAP: 0.5\n",
     "loss", "2.25",
     "50 lr 0.01\n"
     "50 time 0.5\n"
     "50 loss 2.5\n"
     "50 loss_cls 1.5\n"
     "100 lr 0.01\n"
     "100 time 0.5\n"
     "100 loss 2.25\n"
     "100 loss_cls 1.5\n"
     "150 lr 0.01\n"
     "150 time 0.5\n"
     "150 loss 2.5\n"
     "150 loss_cls 1.5\n"
     "200 lr 0.01\n"
     "200 time 0.5\n"
     "200 loss 2.25\n"
     "200 loss_cls 1.5\n"
     "200 val/coco/bbox_mAP 0.5\n"},
    {"mmdet2.log",
     "2021-01-01 00:00:00,000 - mmdet - INFO - Epoch [1][50/7330]\tlr: 1.978e-03, eta: 1 day, "
     "1:00:00, time: 0.5, memory: 3000, loss: 2.5\n"
     "2021-01-01 00:00:00,000 - mmdet - INFO - Epoch [2][50/7330]\tlr: 1.978e-03, eta: 1 day, "
     "1:00:00, time: 0.5, memory: 3000, loss: 2.5\n"
     "2021-01-01 00:00:00,000 - mmdet - INFO - Epoch [3][50/7330]\tlr: 1.978e-03, eta: 1 day, "
     "1:00:00, time: 0.5, memory: 3000, loss: 2.25\n",
     "loss", "2.25",
     "50 lr 0.001978\n"
     "50 time 0.5\n"
     "50 memory 3000\n"
     "50 loss 2.5\n"
     "7380 lr 0.001978\n"
     "7380 time 0.5\n"
     "7380 memory 3000\n"
     "7380 loss 2.5\n"
     "14710 lr 0.001978\n"
     "14710 time 0.5\n"
     "14710 memory 3000\n"
     "14710 loss 2.25\n"},
    {"ppdet.log",
     "[01/01 00:00:00] ppdet.engine INFO: Epoch: [0] [  0/1250] learning_rate: 0.000333 loss: 2.5 "
     "eta: 1:00:00 batch_cost: 0.5 ips: 16.0 images/s\n"
     "[01/01 00:00:00] ppdet.engine INFO: Epoch: [1] [  0/1250] learning_rate: 0.000333 loss: 2.25 "
     "eta: 1:00:00 batch_cost: 0.5 ips: 16.0 images/s\n",
     "loss", "2.25",
     "0 learning_rate 0.000333\n"
     "0 loss 2.5\n"
     "0 batch_cost 0.5\n"
     "0 ips 16\n"
     "1250 learning_rate 0.000333\n"
     "1250 loss 2.25\n"
     "1250 batch_cost 0.5\n"
     "1250 ips 16\n"},
    {"paddlespeech.log",
     "2024-01-01 00:00:00.000 | INFO     | paddlespeech.s2t.training.trainer:train:1 - Train: "
     "Rank: 0, epoch: 0, iter: 100, lr: 0.001, loss: 2.5, avg_batch_cost: 0.5 sec\n"
     "2024-01-01 00:00:00.000 | INFO     | paddlespeech.s2t.training.trainer:train:1 - Train: "
     "Rank: 0, epoch: 0, iter: 200, lr: 0.001, loss: 2.25, avg_batch_cost: 0.5 sec\n",
     "loss", "2.25",
     "100 lr 0.001\n"
     "100 loss 2.5\n"
     "100 avg_batch_cost 0.5\n"
     "200 lr 0.001\n"
     "200 loss 2.25\n"
     "200 avg_batch_cost 0.5\n"},
    {"espnet.log",
     "[host] 2024-01-01 00:00:00,000 (trainer:123) INFO: 1epoch:train:1-100batch: iter_time=0.5, "
     "loss_ctc=50.5, acc=0.5, loss=2.5, grad_norm=5.5, clip=100.000, optim0_lr0=2.5e-05\n"
     "[host] 2024-01-01 00:00:00,000 (trainer:123) INFO: 2epoch:train:1-100batch: iter_time=0.5, "
     "loss_ctc=50.5, acc=0.5, loss=2.25, grad_norm=5.5, clip=100.000, optim0_lr0=2.5e-05\n"
     "[host] 2024-01-01 00:00:00,000 (trainer:345) INFO: 2epoch results: [train] iter_time=0.5, "
     "loss=40.5, time=10 minutes and 1.2 seconds, total_count=1000, [valid] loss=35.5, acc=0.75, "
     "total_count=10\n",
     "loss", "2.25",
     "100 iter_time 0.5\n"
     "100 loss_ctc 50.5\n"
     "100 acc 0.5\n"
     "100 loss 2.5\n"
     "100 grad_norm 5.5\n"
     "100 clip 100\n"
     "100 optim0_lr0 2.5e-05\n"
     "200 iter_time 0.5\n"
     "200 loss_ctc 50.5\n"
     "200 acc 0.5\n"
     "200 loss 2.25\n"
     "200 grad_norm 5.5\n"
     "200 clip 100\n"
     "200 optim0_lr0 2.5e-05\n"
     "200 epoch/iter_time 0.5\n"
     "200 epoch/loss 40.5\n"
     "200 time 10\n"
     "200 minutes and 1.2\n"
     "200 total_count 1000\n"
     "200 val/loss 35.5\n"
     "200 val/acc 0.75\n"
     "200 val/total_count 10\n"},
    {"icefall.log",
     "2024-01-01 00:00:00,000 INFO [train.py:895] (0/2) Epoch 1, batch 50, loss[loss=2.5, "
     "simple_loss=0.5, over 1234.00 frames. ], tot_loss[loss=3.5, simple_loss=0.75, over 123456.00 "
     "frames. ], batch size: 30, lr: 1.0e-03\n"
     "2024-01-01 00:00:00,000 INFO [train.py:932] (0/2) Epoch 1, validation: loss=0.5, "
     "simple_loss=0.25, over 999.00 frames. \n"
     "2024-01-01 00:00:00,000 INFO [train.py:895] (0/2) Epoch 2, batch 50, loss[loss=2.25, "
     "simple_loss=0.5, over 1234.00 frames. ], tot_loss[loss=3.5, simple_loss=0.75, over 123456.00 "
     "frames. ], batch size: 30, lr: 1.0e-03\n"
     "2024-01-01 00:00:00,000 INFO [train.py:932] (0/2) Epoch 2, validation: loss=0.5, "
     "simple_loss=0.25, over 999.00 frames. \n",
     "loss/loss", "2.25",
     "50 loss/loss 2.5\n"
     "50 loss/simple_loss 0.5\n"
     "50 loss/over 1234\n"
     "50 tot_loss/loss 3.5\n"
     "50 tot_loss/simple_loss 0.75\n"
     "50 tot_loss/over 123456\n"
     "50 batch size 30\n"
     "50 lr 0.001\n"
     "50 val/loss 0.5\n"
     "50 val/simple_loss 0.25\n"
     "50 val/over 999\n"
     "100 loss/loss 2.25\n"
     "100 loss/simple_loss 0.5\n"
     "100 loss/over 1234\n"
     "100 tot_loss/loss 3.5\n"
     "100 tot_loss/simple_loss 0.75\n"
     "100 tot_loss/over 123456\n"
     "100 batch size 30\n"
     "100 lr 0.001\n"
     "100 val/loss 0.5\n"
     "100 val/simple_loss 0.25\n"
     "100 val/over 999\n"},
    {"composer.log",
     "[batch=1/100]:\n"
     "\t Train time/epoch: 0\n"
     "\t Train loss/train/total: 2.5\n"
     "\t Train throughput/batches_per_sec: 1.5\n"
     "[batch=2/100]:\n"
     "\t Train time/epoch: 0\n"
     "\t Train loss/train/total: 2.25\n"
     "\t Train throughput/batches_per_sec: 1.5\n",
     "Train loss/train/total", "2.25",
     "1 Train time/epoch 0\n"
     "1 Train loss/train/total 2.5\n"
     "1 Train throughput/batches_per_sec 1.5\n"
     "2 Train time/epoch 0\n"
     "2 Train loss/train/total 2.25\n"
     "2 Train throughput/batches_per_sec 1.5\n"},
    {"coqui.log",
     "\n"
     " > EPOCH: 0/1000\n"
     " --> /out/run\n"
     "\n"
     "   --> TIME: 2024-01-01 00:00:00 -- STEP: 0/400 -- GLOBAL_STEP: 0\n"
     "     | > loss: 2.5  (2.5551)\n"
     "     | > current_lr: 0.001 \n"
     "\n"
     "   --> TIME: 2024-01-01 00:00:00 -- STEP: 25/400 -- GLOBAL_STEP: 25\n"
     "     | > loss: 2.25  (2.5551)\n"
     "     | > current_lr: 0.001 \n",
     "loss", "2.25",
     "0 loss 2.5\n"
     "0 current_lr 0.001\n"
     "25 loss 2.25\n"
     "25 current_lr 0.001\n"},
    {"lightning_rich.log",
     "Epoch 0/9  \u2501\u2501\u2501\u2501 100/1875 0:00:01 \u2022 0:00:15 118.92it/s v_num: 0.000 "
     "train_loss: 2.5\n"
     "Epoch 1/9  \u2501\u2501\u2501\u2501 100/1875 0:00:01 \u2022 0:00:15 118.92it/s v_num: 0.000 "
     "train_loss: 2.25\n",
     "train_loss", "2.25",
     "100 v_num 0\n"
     "100 train_loss 2.5\n"
     "1975 v_num 0\n"
     "1975 train_loss 2.25\n"},
    {"stable_baselines3.log",
     "-----------------------------------------\n"
     "| rollout/                |             |\n"
     "|    ep_rew_mean          | 20        |\n"
     "| time/                   |             |\n"
     "|    iterations           | 1           |\n"
     "|    total_timesteps      | 2048        |\n"
     "| train/                  |             |\n"
     "|    loss                 | 2.5         |\n"
     "-----------------------------------------\n"
     "-----------------------------------------\n"
     "| rollout/                |             |\n"
     "|    ep_rew_mean          | 21        |\n"
     "| time/                   |             |\n"
     "|    iterations           | 2           |\n"
     "|    total_timesteps      | 4096        |\n"
     "| train/                  |             |\n"
     "|    loss                 | 2.25         |\n"
     "-----------------------------------------\n",
     "train/loss", "2.25",
     "2048 rollout/ep_rew_mean 20\n"
     "2048 time/iterations 1\n"
     "2048 train/loss 2.5\n"
     "4096 rollout/ep_rew_mean 21\n"
     "4096 time/iterations 2\n"
     "4096 train/loss 2.25\n"},
    {"spinning_up.log",
     "---------------------------------------\n"
     "|             Epoch |               0 |\n"
     "|      AverageEpRet |            20.5 |\n"
     "|            LossPi |            2.5 |\n"
     "---------------------------------------\n"
     "---------------------------------------\n"
     "|             Epoch |               1 |\n"
     "|      AverageEpRet |            20.5 |\n"
     "|            LossPi |            2.25 |\n"
     "---------------------------------------\n",
     "LossPi", "2.25",
     "0 AverageEpRet 20.5\n"
     "0 LossPi 2.5\n"
     "1 AverageEpRet 20.5\n"
     "1 LossPi 2.25\n"},
    {"torchtune.log",
     "\r"
     "1|1|Loss: 2.5:   10%|\u2588         | 1/60 [00:01<00:50,  1.00it/s]\r"
     "1|2|Loss: 2.25:   20%|\u2588         | 2/60 [00:02<00:50,  1.00it/s]\n",
     "Loss", "2.25",
     "1 Loss 2.5\n"
     "2 Loss 2.25\n"},
    {"yolo.log",
     "\n"
     "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size\n"
     "        1/100      2.5G      2.5      1.5         81        640: 100%|\u2588\u2588| 625/625 "
     "[01:09<00:00,  8.97it/s]\n"
     "                 Class     Images  Instances      Box(P          R\n"
     "                   all       5000      36335      0.622      0.532\n"
     "\n"
     "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size\n"
     "        2/100      2.5G      2.25      1.5         81        640: 100%|\u2588\u2588| 625/625 "
     "[01:09<00:00,  8.97it/s]\n"
     "                 Class     Images  Instances      Box(P          R\n"
     "                   all       5000      36335      0.622      0.532\n",
     "box_loss", "2.25",
     "1 GPU_mem 2500000000\n"
     "1 box_loss 2.5\n"
     "1 cls_loss 1.5\n"
     "1 Instances 81\n"
     "1 Size 640\n"
     "2 GPU_mem 2500000000\n"
     "2 box_loss 2.25\n"
     "2 cls_loss 1.5\n"
     "2 Instances 81\n"
     "2 Size 640\n"},
    {"fastai.log",
     "epoch     train_loss  valid_loss  accuracy  time    \n"
     "0         2.5         1.5         0.5       00:12   \n"
     "1         2.25        1.5         0.5       00:12   \n",
     "train_loss", "2.25",
     "0 train_loss 2.5\n"
     "0 valid_loss 1.5\n"
     "0 accuracy 0.5\n"
     "1 train_loss 2.25\n"
     "1 valid_loss 1.5\n"
     "1 accuracy 0.5\n"},
    {"skorch.log",
     "  epoch    train_loss    valid_acc     dur\n"
     "-------  ------------  -----------  ------\n"
     "      1        \x1b[36m2.5\x1b[0m       \x1b[32m0.5\x1b[0m  0.25\n"
     "      2        \x1b[36m2.25\x1b[0m       \x1b[32m0.5\x1b[0m  0.25\n",
     "train_loss", "2.25",
     "1 train_loss 2.5\n"
     "1 valid_acc 0.5\n"
     "1 dur 0.25\n"
     "2 train_loss 2.25\n"
     "2 valid_acc 0.5\n"
     "2 dur 0.25\n"},
    {"xgboost.log",
     "[0]\ttrain-rmse:2.5\teval-rmse:1.5\n"
     "[1]\ttrain-rmse:2.25\teval-rmse:1.5\n",
     "train-rmse", "2.25",
     "0 train-rmse 2.5\n"
     "0 eval-rmse 1.5\n"
     "1 train-rmse 2.25\n"
     "1 eval-rmse 1.5\n"},
    {"xgboost_python.log",
     "[10:00:00] [0]\tvalidation_0-logloss:2.5\tvalidation_1-logloss:1.5\n"
     "[10:00:01] [1]\tvalidation_0-logloss:2.25\tvalidation_1-logloss:1.5\n",
     "validation_0-logloss", "2.25",
     "0 validation_0-logloss 2.5\n"
     "0 validation_1-logloss 1.5\n"
     "1 validation_0-logloss 2.25\n"
     "1 validation_1-logloss 1.5\n"},
    {"lightgbm.log",
     "[LightGBM] [Info] Total Bins 6132\n"
     "[1]\tvalid_0's l2: 2.5\tvalid_0's auc: 0.75\n"
     "[2]\tvalid_0's l2: 2.25\tvalid_0's auc: 0.75\n",
     "valid_0's l2", "2.25",
     "1 valid_0's l2 2.5\n"
     "1 valid_0's auc 0.75\n"
     "2 valid_0's l2 2.25\n"
     "2 valid_0's auc 0.75\n"},
    {"catboost.log",
     "0:\tlearn: 2.5\ttest: 1.5\tbest: 1.5 (0)\ttotal: 250ms\tremaining: 5s\n"
     "1:\tlearn: 2.25\ttest: 1.5\tbest: 1.5 (1)\ttotal: 250ms\tremaining: 5s\n",
     "learn", "2.25",
     "0 learn 2.5\n"
     "0 test 1.5\n"
     "0 best 1.5\n"
     "0 total 0.25\n"
     "0 remaining 5\n"
     "1 learn 2.25\n"
     "1 test 1.5\n"
     "1 best 1.5\n"
     "1 total 0.25\n"
     "1 remaining 5\n"},
    {"sklearn_mlp.log",
     "Iteration 1, loss = 2.50000000\n"
     "Iteration 2, loss = 2.25000000\n",
     "loss", "2.25000000",
     "1 loss 2.5\n"
     "2 loss 2.25\n"},
    {"sklearn_boosting.log",
     "      Iter       Train Loss   Remaining Time \n"
     "         1           2.5000            0.5s\n"
     "         2           2.2500            0.5s\n",
     "Train Loss", "2.2500",
     "1 Train Loss 2.5\n"
     "1 Remaining Time 0.5\n"
     "2 Train Loss 2.25\n"
     "2 Remaining Time 0.5\n"},
    {"sklearn_sgd.log",
     "-- Epoch 1\n"
     "Norm: 22.5, NNZs: 2, Bias: -0.5, T: 100, Avg. loss: 2.5\n"
     "Total training time: 0.00 seconds.\n"
     "-- Epoch 2\n"
     "Norm: 22.5, NNZs: 2, Bias: -0.5, T: 100, Avg. loss: 2.25\n"
     "Total training time: 0.00 seconds.\n",
     "Avg. loss", "2.25",
     "1 Norm 22.5\n"
     "1 NNZs 2\n"
     "1 Bias -0.5\n"
     "1 T 100\n"
     "1 Avg. loss 2.5\n"
     "2 Norm 22.5\n"
     "2 NNZs 2\n"
     "2 Bias -0.5\n"
     "2 T 100\n"
     "2 Avg. loss 2.25\n"},
    {"marian.log",
     "[2024-01-01 00:00:00] Ep. 1 : Up. 100 : Sen. 6,400 : Cost 2.50000000 : Time 10.50s : 1234.50 "
     "words/s : gNorm 1.5 : L.r. 1.0000e-04\n"
     "[2024-01-01 00:00:00] Ep. 1 : Up. 200 : Sen. 6,400 : Cost 2.25000000 : Time 10.50s : 1234.50 "
     "words/s : gNorm 1.5 : L.r. 1.0000e-04\n",
     "Cost", "2.25000000",
     "100 Sen. 6400\n"
     "100 Cost 2.5\n"
     "100 Time 10.5\n"
     "100 words/s 1234.5\n"
     "100 gNorm 1.5\n"
     "100 L.r. 0.0001\n"
     "200 Sen. 6400\n"
     "200 Cost 2.25\n"
     "200 Time 10.5\n"
     "200 words/s 1234.5\n"
     "200 gNorm 1.5\n"
     "200 L.r. 0.0001\n"},
    {"language_model.log",
     "| epoch   1 |   200/ 2983 batches | lr 5.00 | ms/batch 12.5 | loss  2.50 | ppl 12.5\n"
     "| epoch   1 |   400/ 2983 batches | lr 5.00 | ms/batch 12.5 | loss  2.25 | ppl 12.5\n"
     "| end of epoch   1 | time: 40.00s | valid loss  5.5 | valid ppl   330.5\n",
     "loss", "2.25",
     "200 lr 5\n"
     "200 ms/batch 12.5\n"
     "200 loss 2.5\n"
     "200 ppl 12.5\n"
     "400 lr 5\n"
     "400 ms/batch 12.5\n"
     "400 loss 2.25\n"
     "400 ppl 12.5\n"
     "400 time 40\n"
     "400 valid loss 5.5\n"
     "400 valid ppl 330.5\n"},
    {"speechbrain.log",
     "epoch: 1, lr: 1.00e+00 - train loss: 2.5 - valid loss: 1.5, valid WER: 12.5\n"
     "epoch: 2, lr: 1.00e+00 - train loss: 2.25 - valid loss: 1.5, valid WER: 12.5\n",
     "train loss", "2.25",
     "1 lr 1\n"
     "1 train loss 2.5\n"
     "1 valid loss 1.5\n"
     "1 valid WER 12.5\n"
     "2 lr 1\n"
     "2 train loss 2.25\n"
     "2 valid loss 1.5\n"
     "2 valid WER 12.5\n"},
    {"allennlp.log",
     "accuracy: 0.5, batch_loss: 1.5, loss: 2.5 ||:  0%|#  | 0/100 [00:01<00:10,  9.0it/s]\n"
     "accuracy: 0.5, batch_loss: 1.5, loss: 2.25 ||:  10%|#  | 10/100 [00:01<00:10,  9.0it/s]\n",
     "loss", "2.25",
     "0 accuracy 0.5\n"
     "0 batch_loss 1.5\n"
     "0 loss 2.5\n"
     "10 accuracy 0.5\n"
     "10 batch_loss 1.5\n"
     "10 loss 2.25\n"},
    {"olmo_core.log",
     "2024-01-01 "
     "00:00:00.000\thost:0\tolmo_core.train.callbacks.console_logger:43\tINFO\t[step=1/"
     "1000,epoch=1,eta=1:00:00]\n"
     "    optim/LR (group 0)=3.0E-04\n"
     "    train/CE loss=2.5\n"
     "    throughput/total tokens=4,194,304\n"
     "2024-01-01 "
     "00:00:00.000\thost:0\tolmo_core.train.callbacks.console_logger:43\tINFO\t[step=2/"
     "1000,epoch=1,eta=1:00:00]\n"
     "    optim/LR (group 0)=3.0E-04\n"
     "    train/CE loss=2.25\n"
     "    throughput/total tokens=4,194,304\n",
     "train/CE loss", "2.25",
     "1 epoch 1\n"
     "1 optim/LR (group 0) 0.0003\n"
     "1 train/CE loss 2.5\n"
     "1 throughput/total tokens 4194304\n"
     "2 epoch 1\n"
     "2 optim/LR (group 0) 0.0003\n"
     "2 train/CE loss 2.25\n"
     "2 throughput/total tokens 4194304\n"},
    {"dcgan.log",
     "[0/25][50/1583]\tLoss_D: 2.5\tLoss_G: 4.5\tD(x): 0.5\tD(G(z)): 0.25 / 0.01\n"
     "[1/25][50/1583]\tLoss_D: 2.25\tLoss_G: 4.5\tD(x): 0.5\tD(G(z)): 0.25 / 0.01\n",
     "Loss_D", "2.25",
     "50 Loss_D 2.5\n"
     "50 Loss_G 4.5\n"
     "50 D(x) 0.5\n"
     "50 D(G(z)) 0.25\n"
     "1633 Loss_D 2.25\n"
     "1633 Loss_G 4.5\n"
     "1633 D(x) 0.5\n"
     "1633 D(G(z)) 0.25\n"},
    {"epoch_comma.log",
     "Epoch 1, Loss: 2.5\n"
     "Epoch 2, Loss: 2.25\n",
     "Loss", "2.25",
     "1 Loss 2.5\n"
     "2 Loss 2.25\n"},
    {"epoch_bracket.log",
     "Epoch [1/200], Loss: 2.5000, Val Loss: 1.5\n"
     "Epoch [2/200], Loss: 2.2500, Val Loss: 1.5\n",
     "Loss", "2.2500",
     "1 Loss 2.5\n"
     "1 Val Loss 1.5\n"
     "2 Loss 2.25\n"
     "2 Val Loss 1.5\n"},
    {"epoch_pipe.log",
     "Epoch: 1 | Train Loss: 2.5 | Val Loss: 1.5\n"
     "Epoch: 2 | Train Loss: 2.25 | Val Loss: 1.5\n",
     "Train Loss", "2.25",
     "1 Train Loss 2.5\n"
     "1 Val Loss 1.5\n"
     "2 Train Loss 2.25\n"
     "2 Val Loss 1.5\n"},
    {"epoch_of.log",
     "Epoch 1/10 - loss: 2.5 - acc: 0.5\n"
     "Epoch 2/10 - loss: 2.25 - acc: 0.5\n",
     "loss", "2.25",
     "1 loss 2.5\n"
     "1 acc 0.5\n"
     "2 loss 2.25\n"
     "2 acc 0.5\n"},
    {"epoch_lines.log",
     "Epoch: 01 | Epoch Time: 0m 12s\n"
     "\tTrain Loss: 2.5 | Train PPL:  12.5\n"
     "\t Val. Loss: 1.5 |  Val. PPL:  11.5\n"
     "Epoch: 02 | Epoch Time: 0m 12s\n"
     "\tTrain Loss: 2.25 | Train PPL:  12.5\n"
     "\t Val. Loss: 1.5 |  Val. PPL:  11.5\n",
     "Train Loss", "2.25",
     "1 Epoch Time 12\n"
     "1 Train Loss 2.5\n"
     "1 Train PPL 12.5\n"
     "1 Val. Loss 1.5\n"
     "1 Val. PPL 11.5\n"
     "2 Epoch Time 12\n"
     "2 Train Loss 2.25\n"
     "2 Train PPL 12.5\n"
     "2 Val. Loss 1.5\n"
     "2 Val. PPL 11.5\n"},
    {"epoch_batch.log",
     "Epoch 1, Batch 50/100, Loss: 2.5\n"
     "Epoch 2, Batch 50/100, Loss: 2.25\n",
     "Loss", "2.25",
     "50 Loss 2.5\n"
     "150 Loss 2.25\n"},
    {"epoch_key.log",
     "epoch=1 train_loss=2.5 val_loss=1.5\n"
     "epoch=2 train_loss=2.25 val_loss=1.5\n",
     "train_loss", "2.25",
     "1 train_loss 2.5\n"
     "1 val_loss 1.5\n"
     "2 train_loss 2.25\n"
     "2 val_loss 1.5\n"},
    {"update.log",
     "update 0 loss 2.5\n"
     "update 1 loss 2.25\n",
     "loss", "2.25",
     "0 loss 2.5\n"
     "1 loss 2.25\n"},
    {"it.log",
     "it=0 loss=2.5\n"
     "it=1 loss=2.25\n",
     "loss", "2.25",
     "0 loss 2.5\n"
     "1 loss 2.25\n"},
    {"keras.log",
     "Epoch 1/10\n"
     " 50/100 [=====>......] - ETA: 0s - loss: 0.7\r"
     "100/100 [==============================] - 0s 4ms/step - loss: 2.5 - val_loss: 1.5\n"
     "Epoch 2/10\n"
     " 50/100 [=====>......] - ETA: 0s - loss: 0.7\r"
     "100/100 [==============================] - 0s 5ms/step - loss: 2.25 - val_loss: 1.5\n",
     "loss", "2.25",
     "1 loss 2.5\n"
     "1 val_loss 1.5\n"
     "2 loss 2.25\n"
     "2 val_loss 1.5\n"},
    {"docker.json",
     "{\"log\":\"step 0: loss 2.5 lr "
     "0.001\\n\",\"stream\":\"stdout\",\"time\":\"2024-01-01T00:00:00.000000000Z\"}\n"
     "{\"log\":\"step 10: loss 2.25 lr "
     "0.001\\n\",\"stream\":\"stdout\",\"time\":\"2024-01-01T00:00:00.000000000Z\"}\n",
     "loss", "2.25",
     "0 loss 2.5\n"
     "0 lr 0.001\n"
     "10 loss 2.25\n"
     "10 lr 0.001\n"},
    {"journald.json",
     "{\"__CURSOR\":\"x\",\"PRIORITY\":\"6\",\"MESSAGE\":\"step 0: loss 2.5 lr "
     "0.001\",\"_PID\":\"123\"}\n"
     "{\"__CURSOR\":\"x\",\"PRIORITY\":\"6\",\"MESSAGE\":\"step 10: loss 2.25 lr "
     "0.001\",\"_PID\":\"123\"}\n",
     "loss", "2.25",
     "0 loss 2.5\n"
     "0 lr 0.001\n"
     "10 loss 2.25\n"
     "10 lr 0.001\n"},
    {"decimal_comma.log",
     "step 0: loss 2,5 lr 0,0005\n"
     "step 1: loss 2,25 lr 0,0005\n",
     "loss", "2,25",
     "0 loss 2.5\n"
     "0 lr 0.0005\n"
     "1 loss 2.25\n"
     "1 lr 0.0005\n"},
    {"zero_epochs.log",
     "Epoch 0 Iteration 0 loss 2.25\n"
     "Epoch 0 Iteration 10 loss 2.25\n"
     "Epoch 1 Iteration 0 loss 2.25\n"
     "Epoch 1 Iteration 10 loss 2.25\n",
     "loss", "2.25",
     "0 loss 2.25\n"
     "10 loss 2.25\n"
     "20 loss 2.25\n"
     "30 loss 2.25\n"},
    {"rich.log",
     "[11/29/26 06:44:00] INFO     step 0 loss 2.5 grad_norm        train.py:52\n"
     "                             1.25 lr 0.001\n"
     "[11/29/26 06:44:01] INFO     step 1 loss 2.25 grad_norm        train.py:52\n"
     "                             1.25 lr 0.001\n",
     "loss", "2.25",
     "0 loss 2.5\n"
     "0 grad_norm 1.25\n"
     "0 lr 0.001\n"
     "1 loss 2.25\n"
     "1 grad_norm 1.25\n"
     "1 lr 0.001\n"},
};

PointsRead ReadTool(const ToolLog& tool, const std::string& text) {
  return ReadPoints(TrainerLogFormat(), text, {}, tool.name);
}

TEST(ToolLogs, EveryPointIsRead) {
  for (const ToolLog& tool : kToolLogs) {
    SCOPED_TRACE(tool.name);
    EXPECT_TRUE(Recognises(TrainerLogFormat(), tool.text, tool.name));
    std::string points;
    for (const testing::ReadPoint& p : ReadTool(tool, tool.text).points) {
      char value[32];
      std::snprintf(value, sizeof value, "%.10g", p.value);
      points += std::to_string(p.step) + " " + p.series + " " + value + "\n";
    }
    EXPECT_EQ(points, tool.points);
  }
}

TEST(ToolLogs, ANanIsReadAtItsStep) {
  for (const ToolLog& tool : kToolLogs) {
    SCOPED_TRACE(tool.name);
    std::string text = tool.text;
    const std::string last = tool.last;
    text.replace(text.rfind(last), last.size(), "nan");
    const PointsRead healthy = ReadTool(tool, tool.text), read = ReadTool(tool, text);
    ASSERT_FALSE(read.Values(tool.loss).empty());
    EXPECT_TRUE(std::isnan(read.Values(tool.loss).back()));
    EXPECT_EQ(read.Steps(tool.loss), healthy.Steps(tool.loss));
    for (size_t i = 0; i + 1 < read.Values(tool.loss).size(); ++i)
      EXPECT_EQ(read.Values(tool.loss)[i], healthy.Values(tool.loss)[i]);
  }
}

TEST(ToolLogs, AGrowingFileGivesTheSame) {
  for (const ToolLog& tool : kToolLogs) {
    SCOPED_TRACE(tool.name);
    const PointsRead whole = ReadTool(tool, tool.text);
    const PointsRead grown = ReadPoints(TrainerLogFormat(), tool.text, {}, tool.name, 97);
    // How fractions are written shows in the first lines alone.
    if (std::string(tool.name) == "decimal_comma.log") continue;
    EXPECT_EQ(grown.Text(), whole.Text());
  }
}

// Numbers that are left out are counted, with the text that stands before the first.
TEST(ToolLogs, WhatIsLeftOutIsCounted) {
  const PointsRead read = ReadPoints(TrainerLogFormat(),
                                     "step 1 | loss: 2.5 | the rate was lowered to: 3\n"
                                     "step 2 | loss: 2.5 | the rate was lowered to: 3\n");
  EXPECT_NE(read.Problems().find("found 2 numbers without on lines with a step, the first behind "
                                 "\"the rate was lowered to\": they are left out"),
            std::string::npos)
      << read.Problems();
  EXPECT_EQ(ReadPoints(TrainerLogFormat(), "step 1 | loss: 2.5 |\n").Problems(), "");
}

// A dictionary without a step takes that of the bar of the training above it.
TEST(ToolLogs, StepsOfABar) {
  const std::string log =
      "Map: 100%|##| 5000/5000 [00:01<00:00, 4000.5 examples/s]\n"
      " 10%|#   | 10/100 [00:01<00:09]\n{'loss': 2.5, 'epoch': 0.1}\n"
      " 20%|##  | 20/100 [00:01<00:09]\n{'loss': nan, 'epoch': 0.2}\n"
      "100%|####| 5/5 [00:01<00:00]\n{'eval_loss': 2.5, 'epoch': 0.2}\n";
  const PointsRead read = ReadPoints(TrainerLogFormat(), log);
  EXPECT_EQ(read.Steps("loss"), (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(read.Steps("eval_loss"), (std::vector<int64_t>{20}));
  EXPECT_EQ(read.Values("Map").size(), 0u);
}

// The tokens seen so far are in the dictionaries of an evaluation, too: they begin no step.
TEST(ToolLogs, TokensSeenBeginNoStep) {
  const PointsRead read = ReadPoints(
      TrainerLogFormat(),
      "{'loss': 2.5, 'num_input_tokens_seen': 10}\n{'eval_loss': 3.5, 'num_input_tokens_seen': "
      "10}\n{'loss': 2.25, 'num_input_tokens_seen': 20}\n");
  EXPECT_EQ(read.Steps("loss"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(read.Steps("eval_loss"), (std::vector<int64_t>{1}));
}

// The source that rich prints at the edge is no value, at any width.
TEST(ToolLogs, LinesThatATerminalCut) {
  for (const size_t width : {20u, 34u, 60u}) {
    std::string log;
    for (int step = 0; step < 4; ++step) {
      const std::string message =
          "step " + std::to_string(step) + " loss 2.5 grad_norm 1.25 lr 0.5 tokens 12";
      for (size_t at = 0; at < message.size();) {
        size_t end = std::min(message.size(), at + width);
        while (end < message.size() && message[end] != ' ') --end;
        std::string row = message.substr(at, end - at);
        row.resize(width, ' ');
        log += at == 0 ? "[11/29/26 06:44:05] INFO     " + row + " train.py:52\n"
                       : std::string(29, ' ') + row + "\n";
        at = end + 1;
      }
    }
    const PointsRead read = ReadPoints(TrainerLogFormat(), log);
    for (const auto& [series, value] : {std::pair("loss", 2.5), std::pair("grad_norm", 1.25),
                                        std::pair("lr", 0.5), std::pair("tokens", 12.0)}) {
      EXPECT_EQ(read.Values(series), std::vector<double>(4, value)) << series << "\n" << log;
      EXPECT_EQ(read.Steps(series), (std::vector<int64_t>{0, 1, 2, 3})) << series;
    }
    EXPECT_EQ(read.points.size(), 16u) << read.Text();
  }
}

// Lines of other programs that hold a count, a colon or an epoch.
TEST(ToolLogs, LinesThatAreNoTraining) {
  const char* texts[] = {
      "epoch: 100\nloss_weight: 0.5\nlr: 0.1\n",
      "[1/20] Building CXX object a.o\n[2/20] Linking CXX executable b\n",
      "Early stopping patience: 3 epochs\nmax epoch: 10, lr: 0.5\n",
      "12: learned to read\n[3] see: page 5\n[4] see: page 6\n",
      "| name | value |\n|------|-------|\n| a | 3 |\n| b | 4 |\n",
      "2024/01/02 batch 5 of letters sent\n",
  };
  for (const char* text : texts) EXPECT_FALSE(Recognises(TrainerLogFormat(), text)) << text;
}

}  // namespace
}  // namespace plumbline::audit
