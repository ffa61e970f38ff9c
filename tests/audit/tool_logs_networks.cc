#include "tests/audit/tool_logs.h"

namespace plumbline::audit::testing {
namespace {

const ToolLog kNetworkLogs[] = {
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
};

}  // namespace

std::span<const ToolLog> NetworkLogs() { return kNetworkLogs; }

}  // namespace plumbline::audit::testing
