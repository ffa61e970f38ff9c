// Tests the steps of lines that state none, and the values that a log states outside its rows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "audit/readers/trainer_log/log_sentences.h"
#include "audit/readers/trainer_log/row_steps.h"
#include "tests/audit/point_reading.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoints;
using Steps = std::vector<int64_t>;

constexpr char kTotals[] =
    "***** Running training *****\n  Num examples = 32,000\n  Num Epochs = 2\n"
    "  Total train batch size (w. parallel, distributed & accumulation) = 32\n"
    "  Total optimization steps = 2,000\n";

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// Rows of a console, one every `stride` steps, of a run with 1,000 steps an epoch.
std::string Console(int rows, int stride, const char* epoch) {
  std::string text;
  for (int i = 1; i <= rows; ++i) {
    text += "{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': " +
            Format(epoch, i * stride / 1000.0) + "}\n";
  }
  return text;
}

Steps Regular(int rows, int stride) {
  Steps steps;
  for (int i = 1; i <= rows; ++i) steps.push_back(i * stride);
  return steps;
}

TEST(RowSteps, FromEpochsAndTotals) {
  for (const int stride : {1, 7, 10, 50}) {
    const int rows = 2000 / stride;
    for (const char* epoch : {"%.2f", "%.16g"}) {
      // One row a hundred steps has the same epoch to two digits.
      const auto steps = RowSteps::Of(kTotals + Console(rows, stride, epoch), "");
      ASSERT_TRUE(steps) << stride << " " << epoch;
      EXPECT_EQ(steps->stride(), stride);
    }
  }
  ASSERT_TRUE(RowSteps::Of(kTotals + Console(30, 10, "%.2f"), ""));
}

TEST(RowSteps, FromTheSummaryAtTheEnd) {
  const std::string end =
      "{'train_runtime': 4500.2, 'train_samples_per_second': 14.2, 'train_steps_per_second': "
      "0.444, 'train_loss': 1.2, 'epoch': 2.0}\n";
  const std::string log = Console(200, 10, "%.2f") + end;
  auto steps = RowSteps::Of(log, log);
  ASSERT_TRUE(steps);
  EXPECT_EQ(steps->stride(), 10);
  for (int i = 1; i <= 200; ++i) EXPECT_EQ(steps->Next(std::round(i) / 100, true), 10 * i);
  EXPECT_EQ(steps->Next(2.0, false), 2000);
}

TEST(RowSteps, NoneWithoutTotalsOrWithTwoMeanings) {
  EXPECT_FALSE(RowSteps::Of(Console(200, 10, "%.2f"), ""));
  EXPECT_FALSE(RowSteps::Of("", ""));
  EXPECT_FALSE(RowSteps::Of(std::string(kTotals), ""));
  // Rows that are not regular, of epochs with two digits.
  EXPECT_FALSE(RowSteps::Of(std::string(kTotals) +
                                "{'loss': 2.5, 'epoch': 0.01}\n"
                                "{'loss': 2.5, 'epoch': 0.5}\n{'loss': 2.5, 'epoch': 0.51}\n",
                            ""));
  // Poison.
  EXPECT_FALSE(
      RowSteps::Of("Total optimization steps = 99999999999999999999\nNum Epochs = 0\n"
                   "{'loss': 1.0, 'epoch': nan}\n",
                   "'train_runtime': inf, 'train_steps_per_second': nan, 'epoch': 0"));
}

TEST(RowSteps, ALogHasThem) {
  std::string log = kTotals + Console(150, 10, "%.2f");
  log += "{'loss': nan, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 1.51}\n";
  log += "{'eval_loss': 2.5, 'epoch': 1.51}\n";
  const PointsRead read = ReadPoints(TrainerLogFormat(), log, {}, "console.log");
  EXPECT_FALSE(read.report.steps_are_rows);
  EXPECT_EQ(read.Steps("loss"), Regular(151, 10));
  EXPECT_EQ(read.Steps("eval_loss"), (Steps{1510}));
  EXPECT_NE(read.Problems().find("1000 steps per epoch, a row every 10 steps"), std::string::npos)
      << read.Problems();
}

TEST(RowSteps, RowsAreCountedOtherwise) {
  const PointsRead read = ReadPoints(TrainerLogFormat(), Console(20, 10, "%.2f"));
  EXPECT_TRUE(read.report.steps_are_rows);
  EXPECT_EQ(read.Steps("loss"), Regular(20, 1));
  EXPECT_NE(read.Problems().find("logged row N, step unknown"), std::string::npos);
  // A log whose lines have steps states them.
  EXPECT_FALSE(
      ReadPoints(TrainerLogFormat(), "step 1 loss 2.5\nstep 2 loss 2.5\n").report.steps_are_rows);
}

// A rollout has several steps, and a resume begins at any: the rollout's number is the step of its
// dictionary, and the steps of other lines are not compared with it.
TEST(RolloutSteps, AreTheRolloutsOwn) {
  for (const int steps_per_rollout : {1, 2, 16}) {
    for (const int first : {0, 500}) {
      std::string log;
      Steps rollouts, steps;
      for (int rollout = first; rollout < first + 20; ++rollout) {
        const std::string number = std::to_string(rollout);
        log += "(RolloutManager pid=77) rollout.py:512 - perf " + number +
               ": {'rollout/truncated_ratio': 0.25, 'perf/rollout_time': 59.5}\n";
        log += "(TrainRayActor pid=78) data.py:211 - rollout " + number +
               ": {'rollout/raw_reward': 0.5, 'rollout/response_lengths': 637.0}\n";
        rollouts.push_back(rollout);
        for (int i = 0; i < steps_per_rollout; ++i) {
          steps.push_back(steps_per_rollout * rollout + i);
          log += "(TrainRayActor pid=78) model.py:560 - step " + std::to_string(steps.back()) +
                 ": {'train/loss': 0.5, 'train/grad_norm': 1.5}\n";
        }
      }
      const PointsRead read = ReadPoints(TrainerLogFormat(), log);
      EXPECT_EQ(read.Problems(), "");
      EXPECT_EQ(read.Steps("rollout/raw_reward"), rollouts);
      EXPECT_EQ(read.Steps("rollout/truncated_ratio"), rollouts);
      EXPECT_EQ(read.Steps("train/loss"), steps);
    }
  }
  // Other words with a number are no step.
  for (const char* word : {"rank", "worker", "worker_rollout", "layer"}) {
    const std::string line = std::string(word) + " 7: {'loss': 2.5, 'reward': 0.5}\n";
    const PointsRead read = ReadPoints(TrainerLogFormat(), line + line);
    for (const int64_t step : read.Steps("loss")) EXPECT_NE(step, 7) << word;
  }
}

// The bar above a row lags, the bar below it is of the row's step or of the next one.
TEST(BetweenBars, TheRegularOneCounts) {
  struct Case {
    Steps above, below, steps;
  };
  const Case cases[] = {
      {{10, 20, 30}, {11, 21, 31}, {10, 20, 30}},     // printed; the next step's bar below
      {{9, 18, 30}, {10, 20, 30}, {10, 20, 30}},      // lagging; drawn again after the row
      {{0, 10, 20}, {10, 20, 30}, {10, 20, 30}},      // drawn with the rows alone
      {{1, 2, 3}, {2, 3, 4}, {1, 2, 3}},              // a row each step
      {{10, 20, 30}, {20, 30, 100}, {10, 20, 30}},    // bars that are drawn rarely
      {{10, 20, 150}, {10, 20, 150}, {10, 20, 150}},  // rows that are not regular
  };
  for (const Case& c : cases) {
    BetweenBars bars;
    Steps steps;
    for (size_t i = 0; i < c.above.size(); ++i)
      steps.push_back(bars.Step(c.above[i], c.below[i], true));
    EXPECT_EQ(steps, c.steps);
    // An evaluation belongs to the row before it.
    EXPECT_EQ(bars.Step(steps.back(), steps.back() + 1, false), steps.back());
  }
}

TEST(LogSentences, Resumes) {
  for (const char* line :
       {"Resuming training from checkpoint-500", "INFO: Resuming from checkpoint at /x/step_500",
        "  Continuing training from global step 1190", "Resumed from epoch 3",
        " successfully loaded checkpoint from /x at iteration 100",
        "Restored all states from the checkpoint at /x/last.ckpt",
        "=> loaded checkpoint 'x.pth' (epoch 3)"})
    EXPECT_TRUE(StatesResume(line)) << line;
  for (const char* line :
       {"", "resume_from_checkpoint: None", "Resuming from checkpoint: None",
        "not resuming training", "Saving model checkpoint to /x", "resume: false",
        "Presumably loaded checks", "Could not find a checkpoint, resuming training from scratch"})
    EXPECT_FALSE(StatesResume(line)) << line;
}

// It begins an attempt where rows came before it; at the log's beginning there is none to begin.
TEST(LogSentences, AResumeWithinALog) {
  const std::string rows = "step 1 loss 2.5\nstep 2 loss 2.5\n";
  const std::string line = "Resuming training from checkpoint-2\n";
  EXPECT_EQ(ReadPoints(TrainerLogFormat(), rows + line + "step 3 loss 2.5\n").resumes, 1u);
  EXPECT_EQ(ReadPoints(TrainerLogFormat(), rows + "step 3 loss 2.5\n").resumes, 0u);
}

TEST(LogSentences, LimitsOfMemory) {
  EXPECT_NEAR(MemoryLimitIn("GPU 0 has a total capacity of 79.15 GiB of which").value_or(0),
              79.15 * 1073741824.0, 1);
  EXPECT_NEAR(MemoryLimitIn("(GPU 0; 23.69 GiB total capacity of 24 GB)").value_or(0), 24e9, 1);
  for (const char* line : {"a total capacity of nan GiB", "a total capacity of ",
                           "a total capacity of 12 apples", "a total capacity of -3 GiB"})
    EXPECT_FALSE(MemoryLimitIn(line)) << line;
}

TEST(LogSentences, LimitsOnTheLine) {
  struct Case {
    const char* text;
    double use, limit;
  };
  for (const Case& c : {Case{"memory: 78.28GiB(98.84%)", 78.28 * 1073741824.0, 85.04e9},
                        Case{"mem 40.1GB/80GB", 40.1e9, 80e9},
                        Case{"mem=78.3/79.2GiB", 78.3 * 1073741824.0, 79.2 * 1073741824.0},
                        Case{"GPU mem: 40536MiB / 81920MiB", 40536 * 1048576.0, 85.9e9}}) {
    const PointsRead read =
        ReadPoints(TrainerLogFormat(), std::string("step 1 loss 2.5 ") + c.text + " tps 4,321\n");
    ASSERT_EQ(read.Values("memory limit").size(), 1u) << c.text << "\n" << read.Text();
    EXPECT_NEAR(read.Values("memory limit")[0], c.limit, 0.001 * c.limit) << c.text;
    EXPECT_NE(read.Text().find(Format("%.6f", c.use)), std::string::npos) << read.Text();
    EXPECT_EQ(read.Values("tps"), (std::vector<double>{4321})) << read.Text();
  }
  // No memory, no share, nothing of a limit.
  for (const char* text : {"acc: 3/10", "mem 40GB", "mem 40GB(max)", "tokens 12.3K/50K",
                           "mem 0GiB(0.00%)", "loss 2.5(98.84%)", "mem 90GB/80GB"}) {
    const PointsRead read =
        ReadPoints(TrainerLogFormat(), std::string("step 1 loss 2.5 ") + text + " tps 4\n");
    EXPECT_TRUE(read.Values("memory limit").empty()) << text;
  }
}

// Iterations that begin at 0 in each epoch, while no line states the epoch: the loss continues from
// its level. In a restarted run the loss is at its first level again.
TEST(StepCount, EpochsThatNoLineStates) {
  const auto log = [](bool again) {
    std::string text;
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int i = 0; i < 20; ++i) {
        const int done = again ? i : 20 * epoch + i;
        text += "iter: " + std::to_string(i) + " loss: " + Format("%.4f", 3 - 0.03 * done) + "\n";
      }
    }
    return text;
  };
  const PointsRead on = ReadPoints(TrainerLogFormat(), log(false));
  Steps steps;
  for (int i = 0; i < 60; ++i) steps.push_back(i);
  EXPECT_EQ(on.Steps("loss"), steps);
  EXPECT_NE(on.Problems().find("restart 2 times"), std::string::npos) << on.Problems();
  const PointsRead again = ReadPoints(TrainerLogFormat(), log(true));
  EXPECT_EQ(again.Steps("loss")[20], 0);
  EXPECT_EQ(again.Problems(), "");
}

struct Shape {
  const char* lines;
  const char* points;
};

// Lines with the step or the name at another place than in most logs.
TEST(LogSteps, ShapesOfTools) {
  const Shape shapes[] = {
      {"epoch: 1 step: 50, loss is 2.5\nepoch: 2 step: 50, loss is 2.25\n",  // MindSpore
       "50 loss 2.500000\n100 loss 2.250000\n"},
      {"I0514 03:22:10.123456 139812345 logging_writer.py:48] [100] accuracy=0.5, loss=2.5\n",
       "100 accuracy 0.500000\n100 loss 2.500000\n"},
      {"[100] loss=2.5, accuracy=0.5\n", "100 loss 2.500000\n100 accuracy 0.500000\n"},
      {"Training Epoch: 1/1, step 3/200 completed (loss: 2.5):   2%|#    | 4/200 [00:10<00:10]\n",
       "3 loss 2.500000\n"},
      {" 141: 0.4, 0.5 avg loss, 0.0001 rate, 1.2 seconds, 9024 images, 1.2 hours left\n",
       "141 avg loss 0.500000\n141 rate 0.000100\n"},
      {"E    #       LOSS TOK2VEC  LOSS NER  SCORE \n---  ------  ------------  --------  ------\n"
       "  0     200       2.50     3.50    0.04\n",
       "200 E 0.000000\n200 LOSS TOK2VEC 2.500000\n200 LOSS NER 3.500000\n200 SCORE 0.040000\n"},
      {"Epoch 0: : 70%|### | 142/200 [00:10<00:10, v_num=0, train_loss=2.5, global_step=140.0]\n",
       "140 v_num 0.000000\n140 train_loss 2.500000\n"},
      {"Epoch 2 | iter 564 step 141 | loss train: 2.5\n", "141 loss train 2.500000\n"},
      // TensorFlow's object detection: a dictionary over lines, below its step.
      {"INFO:tensorflow:Step 100 per-step time 0.5s\n"
       "I0514 03:22:10.123456 13981 model_lib_v2.py:705] Step 100 per-step time 0.5s\n"
       "INFO:tensorflow:{'Loss/a_loss': 1.5,\n 'Loss/total_loss': 2.5,\n 'learning_rate': 0.5}\n",
       "100 per-step time 0.500000\n100 per-step time 0.500000\n100 Loss/a_loss 1.500000\n"
       "100 Loss/total_loss 2.500000\n100 learning_rate 0.500000\n"},
      {"Step 1,390: loss 2.5\n", "1390 loss 2.500000\n"},
      // Swin: an epoch and a batch; no sign separates a time from a name.
      {"[2024-05-14 03:22:10 swin](main.py 226): INFO Train: [4/300][40/200]\teta 0:12:03 lr "
       "0.5\t loss 2.5 (2.5)\n"
       "[2024-05-14 03:22:10 swin](main.py 226): INFO Train: [5/300][0/200]\teta 0:12:03 lr "
       "0.5\t loss 2.25 (2.5)\n",
       "40 lr 0.500000\n40 loss 2.500000\n200 lr 0.500000\n200 loss 2.250000\n"},
      // SlowFast
      {"json_stats: {\"epoch\": \"1/100\", \"iter\": \"50/200\", \"loss\": 2.5}\n"
       "json_stats: {\"epoch\": \"2/100\", \"iter\": \"50/200\", \"loss\": 2.25}\n",
       "50 epoch 1.000000\n50 loss 2.500000\n250 epoch 2.000000\n250 loss 2.250000\n"},
      {"Cost after iteration 100: 0.5\n", "100 Cost 0.500000\n"},
      {"Cost after epoch 10: 0.5\n", "10 Cost 0.500000\n"},
      {"Losses: [2.5, 1.5], step: 200, lr: 0.5, reference_loss: 38\n",
       "200 Losses/[0] 2.500000\n200 Losses/[1] 1.500000\n200 lr 0.500000\n"
       "200 reference_loss 38.000000\n"},
      // VITS, GPT-SoVITS: a list without names, which ends with the step and the rate.
      {"10:00:01,123\tx\tINFO\tTrain Epoch: 1 [0%]\n"
       "10:00:01,123\tx\tINFO\t[2.5, nan, 1.25e+01, 200, 0.0001]\n",
       "200 value[0] 2.500000\n200 value[1] nan\n200 value[2] 12.500000\n200 lr 0.000100\n"},
      {"INFO:x:Train Epoch: 1 [0%]\nINFO:x:boxes: [2.5, 1.5, 1.25, 200, 0.0001]\n", ""},
      {"INFO:x:Train Epoch: 1 [0%]\nINFO:x:[2.5, 1.5, 1.25, 200.5, 0.0001]\n", ""},
      {"INFO:x:Train Epoch: 1 [0%]\nINFO:x:[2.5, 1.5, 1.25, 200, 1.5]\n", ""},
      {"INFO:x:[2.5, 1.5, 1.25, 200, 0.0001]\n", ""},
      // A duration, not what is minimised.
      {"Epoch: 3, cost 12.5 s, loss: 2.5\n", "3 cost time 12.500000\n3 loss 2.500000\n"},
      {"Epoch: 3, cost: 12.5\n", "3 cost 12.500000\n"},
      // A dictionary without a step, of an exception.
      {"iter: 20  total_loss: 2.5  loss_cls: 0.5\nFloatingPointError: Loss became infinite!\n"
       "loss_dict = {'loss_cls': nan}\n",
       "20 total_loss 2.500000\n20 loss_cls 0.500000\n20 loss_cls nan\n"},
      {"Epoch: 1, Train Loss: 2.5\nValidation Loss: 2.75, Validation Acc: 52.5%\n",
       "1 Train Loss 2.500000\n1 Validation Loss 2.750000\n1 Validation Acc 0.525000\n"},
      {"step 100 loss 2.5\n  => Val loss: 2.75\n", "100 loss 2.500000\n100 Val loss 2.750000\n"},
      {"Epoch: 1, Train Loss: 2.5\nTest Accuracy = 0.5\n",
       "1 Train Loss 2.500000\n1 Test Accuracy 0.500000\n"},
      {"Época 1/30: pérdida de entrenamiento: 2,5, pérdida de validación: 2,75\n"
       "Época 2/30: pérdida de entrenamiento: 2,25, pérdida de validación: 2,5\n",
       "1 train loss 2.500000\n1 val loss 2.750000\n2 train loss 2.250000\n"
       "2 val loss 2.500000\n"},
      {"Epoch 5: 100%|##| 100/100 [00:10<00:00,  9.91it/s, train_loss=nan.0]\n",
       "100 train_loss nan\n"},
      {"Epoch[0] Batch [50]\tSpeed: 100.0 samples/sec\tcross-entropy=2.5\n",
       "50 Speed 100.000000\n50 cross-entropy 2.500000\n"},
  };
  for (const Shape& shape : shapes) {
    EXPECT_EQ(ReadPoints(TrainerLogFormat(), shape.lines).Text(), shape.points) << shape.lines;
  }
  // A dictionary that is never closed, and one that begins a line of its own.
  EXPECT_EQ(ReadPoints(TrainerLogFormat(), "{'loss': 2.5,\nstep 3 loss 1.5\n").Text(),
            "3 loss 1.500000\n");
}

// Values on a line of their own, and the notation of other languages for NaN and infinity.
TEST(LogSteps, ValuesAlone) {
  EXPECT_EQ(ReadPoints(TrainerLogFormat(),
                       "step    1/240 | loss 5.1 | norm 1.5\nval loss 4.5\n"
                       "step    2/240 | loss 5.0 | norm 1.5\n")
                .Text(),
            "1 loss 5.100000\n1 norm 1.500000\n1 val loss 4.500000\n2 loss 5.000000\n"
            "2 norm 1.500000\n");
  const PointsRead julia = ReadPoints(
      TrainerLogFormat(), "step 1 loss: NaN32 lr: 0.5\nstep 2 loss: Float32(NaN) lr: Inf32\n");
  ASSERT_EQ(julia.Values("loss").size(), 2u) << julia.Text();
  EXPECT_TRUE(std::isnan(julia.Values("loss")[0]) && std::isnan(julia.Values("loss")[1]));
  EXPECT_TRUE(std::isinf(julia.Values("lr").back()));
}

// "4,507": a fraction if a loss has no other form, thousands if one has more digits.
TEST(LogSteps, ACommaInALoss) {
  const auto first = [](const char* log) {
    return ReadPoints(TrainerLogFormat(), log).Values("loss")[0];
  };
  EXPECT_EQ(first("step 1 loss 4,507\nstep 2 loss 4,211\nstep 3 loss 3,988\n"), 4.507);
  EXPECT_EQ(first("step 1,000 loss: 4,507\nstep 2,000 loss: 4,211\n"), 4.507);
  EXPECT_EQ(first("step 1 loss 4,507\nstep 2 loss 12,211\nstep 3 loss 13,988\n"), 4507);
  EXPECT_EQ(first("step 1 loss 4,507 lr 0.5\nstep 2 loss 4,211 lr 0.5\n"), 4507);
}

// Zero bytes between lines, as after a crash of the host.
TEST(LogSteps, AStretchOfZeros) {
  std::string log;
  for (int i = 0; i < 20; ++i) log += "step " + std::to_string(i) + " loss 2.5\n";
  for (const size_t zeros : {1, 100, 500, 4096}) {
    const std::string holed = log + std::string(zeros, '\0') + "\n" + log;
    EXPECT_TRUE(testing::Recognises(TrainerLogFormat(), holed, "train.log")) << zeros;
  }
  std::string container;
  for (int i = 0; i < 40; ++i) container += "step 1 loss 2.5\n" + std::string(3, '\0');
  EXPECT_FALSE(testing::Recognises(TrainerLogFormat(), container, "train.bin"));
}

// A row above the first drawing of a bar has the step of the bar below it.
TEST(LogSteps, TheFirstRowAboveABar) {
  std::string log;
  for (int step = 1; step <= 4; ++step)
    log += "{'loss': 2.5, 'epoch': 0." + std::to_string(step) + "}\n" + std::to_string(25 * step) +
           "%|##  | " + std::to_string(step) + "/4 [00:01<00:09]\n";
  EXPECT_EQ(ReadPoints(TrainerLogFormat(), log).Steps("loss"), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(ReadPoints(TrainerLogFormat(), "{'loss': 2.5}\n{'loss': 2.25}\n").Steps("loss"),
            (std::vector<int64_t>{1, 2}));
}

// TensorFlow's logger prints a line for each of its handlers.
TEST(LogSteps, ADictionaryThatIsPrintedTwice) {
  std::string log;
  for (int step = 100; step <= 200; step += 100) {
    const std::string stated = "Step " + std::to_string(step) + " per-step time 0.6s\n";
    const std::string values = "{'Loss/total_loss': 2.5,\n 'learning_rate': 0.01}\n";
    log += "INFO:tensorflow:" + stated + "I0514 03:22:10.123456 1 model_lib_v2.py:705] " + stated +
           "INFO:tensorflow:" + values + "I0514 03:22:10.123456 1 model_lib_v2.py:708] " + values;
  }
  EXPECT_EQ(ReadPoints(TrainerLogFormat(), log).Steps("Loss/total_loss"),
            (std::vector<int64_t>{100, 100, 200, 200}));
}

}  // namespace
}  // namespace plumbline::audit
