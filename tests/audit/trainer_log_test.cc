// Lines that trainers print, one shape after the other, and lines that only look like them.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/audit/point_reading.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoints;
using testing::Recognises;
using Steps = std::vector<int64_t>;
using Values = std::vector<double>;

PointsRead Log(const std::string& bytes) { return ReadPoints(TrainerLogFormat(), bytes); }

struct LineCase {
  const char* line;
  const char* points;  // "step series value", a line each
};

TEST(TrainerLog, Shapes) {
  const LineCase cases[] = {
      // Megatron-LM
      {" iteration      100/  500000 | consumed samples:        25600 | elapsed time per iteration "
       "(ms): 1234.5 | learning rate: 1.500000E-04 | lm loss: 8.125000E+00 | loss scale: 1.0 | "
       "number of skipped iterations:   0 | number of nan iterations:   0 |",
       "100 consumed samples 25600\n100 elapsed time per iteration 1.2345\n100 learning rate "
       "0.00015\n100 lm loss 8.125\n100 loss scale 1\n100 number of skipped iterations 0\n100 "
       "number of nan iterations 0\n"},
      {" [2024-01-01 00:00:00.123456] iteration 7/ 10 | lm loss: nan | grad norm: inf |",
       "7 lm loss nan\n7 grad norm inf\n"},
      {" validation loss at iteration 1000 | lm loss value: 3.125E+00 | lm loss PPL: 2.25E+01 |",
       "1000 val/lm loss value 3.125\n1000 val/lm loss PPL 22.5\n"},
      {" throughput per GPU (TFLOP/s/GPU): 120.5 | iteration 5/10 | lm loss: 2.5 | ",
       "5 throughput per GPU (TFLOP/s/GPU) 120.5\n5 lm loss 2.5\n"},
      // DeepSpeed
      {"steps: 10 loss: 2.5000 iter time (s): 1.250 samples/sec: 12.500",
       "10 loss 2.5\n10 iter time 1.25\n10 samples/sec 12.5\n"},
      {"[2023-11-01 00:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, "
       "lr=[1e-05, 1e-05], mom=[(0.9, 0.95), (0.9, 0.95)]",
       "10 skipped 0\n10 lr 1e-05\n10 mom 0.9\n"},
      // key:value
      {"step:10/1770 train_loss:7.125 train_time:1500ms step_avg:150.00ms",
       "10 train_loss 7.125\n10 train_time 1.5\n10 step_avg 0.15\n"},
      {"step:0/1770 val_loss:10.8125 train_time:0ms step_avg:nanms",
       "0 val_loss 10.8125\n0 train_time 0\n0 step_avg nan\n"},
      // nanoGPT and its relatives
      {"step 250: train loss 2.1250, val loss 2.3125",
       "250 train loss 2.125\n250 val loss 2.3125\n"},
      {"iter 250: loss 2.1250, time 12.50ms, mfu 3.25%",
       "250 loss 2.125\n250 time 0.0125\n250 mfu 0.0325\n"},
      {"step     0 | loss: 10.9375 | lr 8.50e-07 | norm: 15.25 | dt: 2512.50ms | tok/sec: "
       "208,000.00",
       "0 loss 10.9375\n0 lr 8.5e-07\n0 norm 15.25\n0 dt 2.5125\n0 tok/sec 208000\n"},
      {"step   10/19560 | loss 10.9375 (+1.25z)| norm 3.2500 (-0.45z)| lr 1.75e-06 | 250.0 ms | "
       "20.9% bf16 MFU | 2095134 tok/s",
       "10 loss 10.9375\n10 norm 3.25\n10 lr 1.75e-06\n10 bf16 MFU 0.209\n10 tok/s 2095134\n"},
      // torchtitan
      {"[rank0]:\x1b[31mstep: 10  \x1b[32mloss:  8.1250  \x1b[38;2;180;60;0mgrad_norm:  1.2500  "
       "\x1b[38;2;54;234;195mmemory: 25.50GiB(27.05%)  \x1b[34mtps: 4,321\x1b[39m",
       "10 loss 8.125\n10 grad_norm 1.25\n10 memory 27380416512\n10 memory limit 101221502817\n10 "
       "tps 4321\n"},
      // Others
      {"[2024-01-01 00:00:00] INFO train.py:33 Epoch: 1 Step: 100, Loss: 2.5, LR: 0.5",
       "100 Loss 2.5\n100 LR 0.5\n"},
      {"[01/02 03:04:05 d2.utils.events]:  eta: 0:10:00  iter: 19  total_loss: 9.5  time: 0.5  "
       "max_mem: 2000M",
       "19 total_loss 9.5\n19 time 0.5\n19 max_mem 2000000000\n"},
      {"07/01 12:00:00 - mmengine - INFO - Iter(train) [ 100/1000]  lr: 1.0000e-03  eta: 0:10:00  "
       "loss: 2.5",
       "100 lr 0.001\n100 loss 2.5\n"},
      {"global_step=7 loss=2.5 path=/data/3 date=2024-05-02 at 12:30:45 version 1.2.3",
       "7 loss 2.5\n"},
      {"Step 1,000 - loss: 2.5 (best: 2.25) - acc: 45.5%", "1000 loss 2.5\n1000 acc 0.455\n"},
      {"step 5: {'loss': 2.5, 'lr': 1e-4}", "5 loss 2.5\n5 lr 0.0001\n"},
      {"2024-01-01 00:00:00 | INFO | train_inner | {\"epoch\": 1, \"update\": 0.5, \"loss\": "
       "\"9.5\", \"num_updates\": \"100\", \"lr\": \"0.25\"}",
       "100 epoch 1\n100 loss 9.5\n100 lr 0.25\n"},
      {"step 4 phase: train loss: 2.5 note=x lr=0.5", "4 loss 2.5\n4 lr 0.5\n"},
      {"  3: step 10: loss 2.5", "10 loss 2.5\n"},
      {"[eval] step 10: loss 2.5", "10 val/loss 2.5\n"},
      {"eval-host-3: step 10: loss 2.5", "10 loss 2.5\n"},
      {"step: 3, loss: tensor(2.5)", "3 loss 2.5\n"},
      // Without a sign between name and value.
      {"step 29: loss nan lr 0.1", "29 loss nan\n29 lr 0.1\n"},
      {"step 29: loss inf lr 0.1", "29 loss inf\n29 lr 0.1\n"},
      {"step 29: loss -inf grad_norm nan lr 0.5", "29 loss -inf\n29 grad_norm nan\n29 lr 0.5\n"},
      {"step 100: train loss nan val loss nan", "100 train loss nan\n100 val loss nan\n"},
      {"step 100: train loss 2.5 val loss nan", "100 train loss 2.5\n100 val loss nan\n"},
      {"iteration 3 | number of nan iterations: 2 | lm loss nan |",
       "3 number of nan iterations 2\n3 lm loss nan\n"},
      {"step 3: found inf in gradients, loss scale 1024", "3 loss scale 1024\n"},
      // Text that libraries print around a number.
      {"step 7 loss=tensor(nan) lr=0.5", "7 loss nan\n7 lr 0.5\n"},
      {"step 7 loss=tensor(2.5, device='cuda:0', grad_fn=<NllLossBackward0>) lr=0.5",
       "7 loss 2.5\n7 lr 0.5\n"},
      {"step 7: loss: tensor([inf], device='cuda:0'), acc: np.float32(0.5)",
       "7 loss inf\n7 acc 0.5\n"},
      {"step 7 loss tensor(2.) norm array(3.5, dtype=float32)", "7 loss 2\n7 norm 3.5\n"},
      // NaN and infinity as other systems write them.
      {"step 8: loss 1.#QNAN, lr 0.5, norm -1.#IND00, scale 1.#INF",
       "8 loss nan\n8 lr 0.5\n8 norm nan\n8 scale inf\n"},
      {"step 8: loss=\u221E lr=0.5 x=-\u221E y=+Inf", "8 loss inf\n8 lr 0.5\n8 x -inf\n8 y inf\n"},
      {"step=10,loss=2.5,epoch=1,eta=0:10:00", "10 loss 2.5\n10 epoch 1\n"},
      {"[step=10/100,epoch=1,eta=2 days, 3:04:05]", "10 epoch 1\n"},
      {"step 10 mem 3.5GB cache 512KiB", "10 mem 3500000000\n10 cache 524288\n"},
  };
  for (const LineCase& c : cases) {
    const PointsRead read = Log(std::string(c.line) + "\n");
    std::string points;
    for (const testing::ReadPoint& p : read.points) {
      char value[32];
      std::snprintf(value, sizeof value, "%.12g", p.value);
      points += std::to_string(p.step) + " " + p.series + " " + value + "\n";
    }
    EXPECT_EQ(points, c.points) << c.line;
    EXPECT_EQ(read.Problems(), "") << c.line;
  }
}

TEST(TrainerLog, LinesThatStaySilent) {
  const char* lines[] = {
      "  Gradient Accumulation steps = 8",
      "  Total optimization steps = 1,000",
      "max_steps: 1000, lr: 0.5",
      "warmup steps 100, lr 0.5",
      "python train.py --steps 100 --lr 0.5 --loss 3",
      "time per step: 12.5 ms, loss 2",
      "12 s/step 3, loss 2",
      "number of skipped iterations: 3 | loss: 2",
      "step 12:30 is the time, loss 2",
      "step 3.5 loss 2",
      "{'lr': 0.5, 'batch_size': 8}",
      "{'loss': 'mse', 'lr': 0.5}",
      "saving model to step_100/loss_2.5.pt",
      "Epoch 0, global step 99: 'val_loss' reached 0.25 (best 0.25), saving model to 'x' as top 3",
      "Epoch 0, global step 99: val_loss reached 0.25 (best 0.25), saving model to x as top 3",
      "step 5: loss",
      "steps",
      "iteration",
      "step:",
      "%|",
      "{'",
      "100%|####| 10/10 [00:01<00:00, 9.1it/s]",
  };
  for (const char* line : lines) {
    EXPECT_EQ(Log(std::string(line) + "\n").Text(), "") << line;
    EXPECT_EQ(Log(line).Text(), "") << line;
  }
}

// A printed dictionary has no step: the one that has a series again begins the next.
TEST(TrainerLog, PrintedDictionariesAreCounted) {
  const PointsRead read =
      Log("{'loss': 2.5, 'grad_norm': 1.5, 'learning_rate': 0.5, 'epoch': 0.1}\n"
          "{'loss': 2.25, 'grad_norm': nan, 'learning_rate': 0.25, 'epoch': 0.2}\n"
          "{'eval_loss': 3.5, 'eval_runtime': 1.5, 'epoch': 0.2}\n"
          "{'loss': '2.125', 'grad_norm': '1.5', 'learning_rate': '0.125', 'epoch': '0.3'}\n"
          "{'train_runtime': 10.5, 'train_loss': 2.375, 'epoch': 0.3}\n");
  EXPECT_EQ(read.Values("loss"), (Values{2.5, 2.25, 2.125}));
  EXPECT_EQ(read.Steps("loss"), (Steps{1, 2, 3}));
  EXPECT_EQ(read.Steps("eval_loss"), (Steps{2}));
  EXPECT_EQ(read.Steps("train_loss"), (Steps{3}));
  EXPECT_TRUE(std::isnan(read.Values("grad_norm").at(1)));
  const PointsRead library = Log(
      "{'loss': tensor(2.5, device='cuda:0'), 'a': {'b': np.float32(0.5)}, 'c': None, 'd': [1, 2], "
      "'e': 'x, y', 'f': True}\n");
  EXPECT_EQ(library.Text(), "1 loss 2.500000\n1 a/b 0.500000\n");
}

// Progress bars: a carriage return ends a line, and each pass continues after the last one.
TEST(TrainerLog, ProgressBars) {
  std::string bytes = "Some weights were loaded\n";
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int i = 0; i <= 4; ++i) {
      bytes += "\rEpoch " + std::to_string(epoch) + ":  " + std::to_string(25 * i) +
               "%|\u2588\u2588  | " + std::to_string(i) + "/4 [00:0" + std::to_string(i) +
               "<00:01, 4.00it/s, loss=" + std::to_string(3 - i) + ".5, v_num=7]";
    }
    bytes += "\n";
  }
  const PointsRead read = Log(bytes);
  EXPECT_EQ(read.Steps("loss"), (Steps{0, 1, 2, 3, 4, 4, 5, 6, 7, 8}));
  EXPECT_EQ(read.Values("loss"), (Values{3.5, 2.5, 1.5, 0.5, -1.5, 3.5, 2.5, 1.5, 0.5, -1.5}));
  // A dictionary that is printed while a bar is shown.
  const PointsRead mixed =
      Log("\r 10%|#  | 1/10 [00:01<00:09, 1.0it/s]{'loss': 2.5, 'epoch': 0.1}\n"
          "\r 20%|## | 2/10 [00:02<00:08, 1.0it/s]\r{'loss': 2.25, 'epoch': 0.2}\n");
  EXPECT_EQ(mixed.Values("loss"), (Values{2.5, 2.25}));
  EXPECT_EQ(mixed.Steps("loss"), (Steps{1, 2}));
}

TEST(TrainerLog, StepsOfAnEpochGoOn) {
  std::string bytes;
  for (int epoch = 1; epoch <= 3; ++epoch) {
    for (int step = 100; step <= 300; step += 100)
      bytes += "Epoch [" + std::to_string(epoch) + "/3], Step [" + std::to_string(step) +
               "/300], Loss: 2.5\n";
  }
  EXPECT_EQ(Log(bytes).Steps("Loss"), (Steps{100, 200, 300, 400, 500, 600, 700, 800, 900}));
  // Global steps next to an epoch do not change, also after a resume.
  EXPECT_EQ(
      Log("epoch 1 step 10 loss 2\nepoch 2 step 20 loss 2\nepoch 1 step 15 loss 2\n").Steps("loss"),
      (Steps{10, 20, 15}));
}

// If one file has several ranks, the first rank has the plain names.
TEST(TrainerLog, RanksInOneFile) {
  for (const auto& [first, second] :
       {std::pair("[rank2]: ", "[rank3]: "), std::pair("2: ", "3: "),
        std::pair("[default2]:", "[default3]:"), std::pair("INFO [Rank 2] ", "INFO [Rank 3] ")}) {
    const PointsRead read = Log(std::string(first) + "step 1: loss 2.5\n" + second +
                                "step 1: loss 3.5\n" + first + "step 2: loss 2.25\n");
    EXPECT_EQ(read.rank, 2) << first;
    EXPECT_EQ(read.Values("loss"), (Values{2.5, 2.25})) << first;
    EXPECT_EQ(read.Values("rank3/loss"), (Values{3.5})) << first;
  }
  EXPECT_EQ(Log("step 1: loss 2\n").rank, -1);
}

// OLMo prints the step alone and the values under it.
TEST(TrainerLog, ValuesUnderTheirStep) {
  const PointsRead read =
      Log("2024-01-01 INFO [train:33, rank=0] [step=10/100]\n    train/CrossEntropyLoss=10.5\n    "
          "optim/lr=2.5e-4\n2024-01-01 INFO done\n    memory=3\n");
  EXPECT_EQ(read.Text(), "10 train/CrossEntropyLoss 10.500000\n10 optim/lr 0.000250\n");
  EXPECT_EQ(read.rank, 0);
  const PointsRead more =
      Log("[rank1] [step=10/100,epoch=0]\n    train/CrossEntropyLoss=nan\n    optim/lr=2.5e-4\n"
          "[rank1] [step=11/100,epoch=0,eta=0:10:00]\n    train/CrossEntropyLoss=2.5\n");
  EXPECT_EQ(more.Text(),
            "10 epoch 0.000000\n10 train/CrossEntropyLoss nan\n10 optim/lr 0.000250\n"
            "11 epoch 0.000000\n11 train/CrossEntropyLoss 2.500000\n");
  EXPECT_EQ(more.rank, 1);
}

TEST(TrainerLog, StrayBytesAndLongLines) {
  using namespace std::string_literals;
  const std::string bytes = "step 1: loss 2.5\n\xff\xfe\0\x01 junk\n"s + std::string(3 << 20, 'x') +
                            " step 9: loss 1\nstep 2: loss \x1b[1m2.25\x1b[0m\r\n" +
                            "step 3: l\xffss 2, grad norm 1.5\n" + std::string(700 << 10, '\r') +
                            "step 4: loss 2\n";
  const PointsRead read = Log(bytes);
  EXPECT_EQ(read.Text(),
            "1 loss 2.500000\n2 loss 2.250000\n3 grad norm 1.500000\n4 loss 2.000000\n");
  EXPECT_EQ(
      read.Problems(),
      "note 27: expected lines of at most 1048576 bytes, found a longer one: such lines were "
      "ignored\nnote 17: expected lines of text, found 1 with zero bytes: they are ignored\n");
}

TEST(TrainerLog, WhatIsNoTrainingLog) {
  const std::string others[] = {
      "",
      "hello\n",
      "step 1: preheat the oven to 200\nstep 2: bake for 30 minutes\n",
      "# step 1: loss 2.5\n# step 2: loss 2.25\n",
      "import torch\nfor step in range(10):\n    print(f'step {step}: loss {loss}')\n",
      "lr: 0.5\nmax_steps: 100\nloss: cross_entropy\n",
      "[optimizer]\nlr = 0.5\nsteps = 100\n",
      "{\"loss\": 2, \"step\": 1}\n{\"loss\": 2, \"step\": 2}\n",
      "step,loss\n1,2\n2,2\n",
      "Nov 27 06:00:00 host kernel: step 1 of 3 done\n",
      std::string(4096, '\0') + "step 1: loss 2\nstep 2: loss 2\n",
  };
  for (const std::string& bytes : others)
    EXPECT_FALSE(Recognises(TrainerLogFormat(), bytes)) << bytes;
  const std::string log = "step 1: loss 2.5\nstep 2: loss 2.25\n";
  EXPECT_TRUE(Recognises(TrainerLogFormat(), log));
  EXPECT_FALSE(Recognises(TrainerLogFormat(), log, "notes.md"));
  EXPECT_FALSE(Recognises(TrainerLogFormat(), log, "train.py"));
  // If the file name is that of a log, one line is enough.
  EXPECT_FALSE(Recognises(TrainerLogFormat(), "step 1: loss 2.5\n"));
  EXPECT_TRUE(Recognises(TrainerLogFormat(), "step 1: loss 2.5\n", "train.log"));
}

// Sentences about a run are no log, whatever the name of the file is.
TEST(TrainerLog, Prose) {
  const std::string sentence = "Tried step=3000 loss=nan again\n";
  const std::string notes[] = {
      sentence,
      "Monday. The run is fine.\n" + sentence + "step=2000 loss=2.3 was fine with lr=1e-4\n",
      "We saw this at step 12000: loss = nan. Then we lowered the rate.\nThat helped a lot.\n",
      "step 100: loss nan\nWe do not know yet why this is so.\nThe rate was too high perhaps.\n",
  };
  for (const std::string& text : notes) {
    for (const char* name : {"notes.txt", "run-notes.txt", "notes", "experiment.txt"})
      EXPECT_FALSE(Recognises(TrainerLogFormat(), text, name)) << name << "\n" << text;
  }
  EXPECT_FALSE(Recognises(TrainerLogFormat(), sentence, "notes.log"));
  // A log whose one line is its last.
  const std::string banner =
      "Loading the weights from a checkpoint\nUsing 8 workers of 1 host\nstarting to train\n";
  for (const char* line : {"step 1: loss nan\n", "step 1: loss nan lr 0.1\n",
                           "[2024-01-01 00:00:00] INFO trainer.py:3 step 1 loss nan\n"}) {
    EXPECT_TRUE(Recognises(TrainerLogFormat(), banner + line, "train.log")) << line;
    EXPECT_TRUE(Recognises(TrainerLogFormat(), banner + line, "train.txt")) << line;
  }
  // Words that are equal in all lines belong to the format of the log.
  std::string syslog;
  for (int step = 1; step < 4; ++step)
    syslog += "Jan 02 03:04:05 myhost python writes step " + std::to_string(step) + " loss 2.5\n";
  EXPECT_TRUE(Recognises(TrainerLogFormat(), syslog));
}

// Records of an evaluation, one example each (lm-eval), have no step.
TEST(TrainerLog, SamplesOfAnEvaluation) {
  std::string samples, bare;
  for (int i = 0; i < 20; ++i) {
    samples += "{\"doc_id\": " + std::to_string(i) +
               ", \"doc\": {\"query\": \"x\", \"choices\": [\"a\", \"b\"], \"gold\": 1}, "
               "\"target\": \"b\", \"arguments\": [[\"x\", \"a\"]], \"resps\": [[\"-1.5\", "
               "\"False\"]], \"doc_hash\": \"ab\", \"acc\": 1.0, \"acc_norm\": 0.0}\n";
    bare += "{\"id\": " + std::to_string(i) + ", \"acc\": 1.0, \"loss\": 2.5}\n";
  }
  for (const std::string& bytes : {samples, bare}) {
    for (const PointFormat* format : {&TrainerLogFormat(), &JsonLinesFormat(), &CsvFormat()})
      EXPECT_FALSE(Recognises(*format, bytes, "samples_hellaswag.jsonl")) << format->name;
  }
}

// The host crashed: the space allocated for the file holds zeros.
TEST(TrainerLog, AnUnwrittenEnd) {
  const std::string bytes =
      "step 1: loss 2.5\nstep 2: loss 2.25\nstep 3: lo" + std::string(9000, '\0');
  EXPECT_TRUE(Recognises(TrainerLogFormat(), bytes));
  const PointsRead read = Log(bytes);
  EXPECT_EQ(read.Text(), "1 loss 2.500000\n2 loss 2.250000\n");
  EXPECT_EQ(read.Problems(),
            "note 45: expected the rest of the file, found only zero bytes up to its end: it was "
            "not written completely\n");
  const PointsRead within =
      Log("step 1: loss 2.5\nstep 2: lo" + std::string(3, '\0') + "ss 2\nstep 3: loss nan\n");
  EXPECT_EQ(within.Steps("loss"), (Steps{1, 3}));
  EXPECT_EQ(within.Problems(),
            "note 17: expected lines of text, found 1 with zero bytes: they are ignored\n");
}

// The output of a job before its first step may be long.
TEST(TrainerLog, ALongBanner) {
  std::string banner;
  for (int i = 0; i < 40000; ++i)
    banner += "loading shard number " + std::to_string(i) + " of many\n";
  ASSERT_GT(banner.size(), size_t{1} << 20);
  EXPECT_FALSE(Recognises(TrainerLogFormat(), banner));
  banner += "step 1: loss 2.5\nstep 2: loss 2.25\n";
  EXPECT_TRUE(Recognises(TrainerLogFormat(), banner));
}

}  // namespace
}  // namespace plumbline::audit
