#include "tests/audit/tool_logs.h"

namespace plumbline::audit::testing {
namespace {

const ToolLog kOtherLogs[] = {
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
    {"elegantrl.log",
     "ID     Step    Time |    avgR   stdR   avgS  stdS |    expR   objC   objA   etc.\n"
     "0  8.19e+03       5 |-1254.98   63.2    200     0 |   -6.27   2.50-115.01   0.55\n"
     "0  1.64e+04      12 |-1036.32   99.4    200     0 |   -5.18   2.25-112.33   0.58\n",
     "objC", "2.25",
     "8190 Time 5\n"
     "8190 avgR -1254.98\n"
     "8190 stdR 63.2\n"
     "8190 avgS 200\n"
     "8190 stdS 0\n"
     "8190 expR -6.27\n"
     "8190 objC 2.5\n"
     "8190 objA -115.01\n"
     "8190 etc. 0.55\n"
     "16400 Time 12\n"
     "16400 avgR -1036.32\n"
     "16400 stdR 99.4\n"
     "16400 avgS 200\n"
     "16400 stdS 0\n"
     "16400 expR -5.18\n"
     "16400 objC 2.25\n"
     "16400 objA -112.33\n"
     "16400 etc. 0.58\n"},
    {"finrl.log",
     "day: 2892, episode: 10\n"
     "begin_total_asset: 1000.00\n"
     "end_total_asset: 1002.50\n"
     "total_reward: 2.50\n"
     "Sharpe: 0.919\n"
     "=================================\n"
     "day: 2892, episode: 20\n"
     "begin_total_asset: 1000.00\n"
     "end_total_asset: 1002.75\n"
     "total_reward: 2.25\n"
     "Sharpe: 0.875\n"
     "=================================\n",
     "total_reward", "2.25",
     "10 day 2892\n"
     "10 begin_total_asset 1000\n"
     "10 end_total_asset 1002.5\n"
     "10 total_reward 2.5\n"
     "10 Sharpe 0.919\n"
     "20 day 2892\n"
     "20 begin_total_asset 1000\n"
     "20 end_total_asset 1002.75\n"
     "20 total_reward 2.25\n"
     "20 Sharpe 0.875\n"},
    {"cleanrl.log",
     "global_step=512, episodic_return=[2.5]\n"
     "global_step=1024, episodic_return=[2.25]\n",
     "episodic_return", "2.25",
     "512 episodic_return 2.5\n"
     "1024 episodic_return 2.25\n"},
    {"federated.log",
     "Round 1 | Client 0 | Loss: 2.50\n"
     "Round 1 | Client 1 | Loss: 3.50\n"
     "Round 2 | Client 0 | Loss: 2.25\n",
     "client 0/Loss", "2.25",
     "1 client 0/Loss 2.5\n"
     "1 client 1/Loss 3.5\n"
     "2 client 0/Loss 2.25\n"},
};

}  // namespace

std::span<const ToolLog> OtherLogs() { return kOtherLogs; }

}  // namespace plumbline::audit::testing
