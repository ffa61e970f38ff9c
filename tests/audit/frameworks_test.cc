// Logs in the format of frameworks, healthy and with a NaN loss, through the whole audit: which
// format takes the file, and whether the NaN is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "tests/audit/point_reading.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoints;
using testing::Recognises;

struct Framework {
  const char* name;  // of the file
  const PointFormat& (*format)();
  const char* loss;                                          // the series
  std::function<std::string(int, const std::string&)> line;  // of a step and a loss as printed
  const char* before = "";                                   // the text before the first line
};

std::string At(int step) { return std::to_string(step); }

const Framework kFrameworks[] = {
    {"megatron.log", TrainerLogFormat, "lm loss",
     [](int step, const std::string& loss) {
       return " [2024-05-02 10:00:00] iteration " + At(step) +
              "/  500000 | consumed samples: 256 | elapsed time per iteration (ms): 1234.5 | "
              "learning rate: 1.5E-04 | global batch size: 256 | lm loss: " +
              loss + " | loss scale: 1.0 | grad norm: 1.250 | number of nan iterations:   0 |\n";
     },
     "using world size: 8, data-parallel size: 8\n> building train, validation datasets ...\n"},
    {"nemo.log", TrainerLogFormat, "reduced_train_loss",
     [](int step, const std::string& loss) {
       return "Training epoch 0, iteration " + At(step) +
              "/99 | lr: 0.0003 | global_batch_size: 32 | "
              "global_step: " +
              At(step) + " | reduced_train_loss: " + loss +
              " | train_step_timing in s: 1.25 | consumed_samples: 64\n";
     },
     "[NeMo I 2024-05-02 10:00:00 exp_manager:396] Experiments will be logged at x\n"},
    {"trainer.out", TrainerLogFormat, "loss",
     [](int, const std::string& loss) {
       return "{'loss': " + loss + ", 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.5}\n";
     }},
    {"metrics.csv", CsvFormat, "train_loss",
     [](int step, const std::string& loss) {
       return "0," + At(step) + "," + loss + ",\n0," + At(step) + ",,2.75\n";
     },
     "epoch,step,train_loss,val_loss\n"},
    {"nanogpt.log", TrainerLogFormat, "val loss",
     [](int step, const std::string& loss) {
       return "step " + At(step) + ": train loss 2.3000, val loss " + loss + "\niter " + At(step) +
              ": loss 2.3125, time 12.50ms, mfu 3.25%\n";
     },
     "number of parameters: 10.65M\ncompiling the model... (takes a ~minute)\n"},
    {"torchtitan.log", TrainerLogFormat, "loss",
     [](int step, const std::string& loss) {
       return "[rank0]:2024-05-02 10:00:00,000 - root - INFO - \x1b[31mstep: " + At(step) +
              "  \x1b[32mloss: " + loss +
              "  \x1b[38;2;180;60;0mgrad_norm:  1.2500  \x1b[33mmemory: 25.50GiB(27.05%)  "
              "\x1b[34mtps: 4,321  \x1b[36mtflops: 98.50  \x1b[35mmfu: 31.57%\x1b[39m\n";
     }},
    {"deepspeed.log", TrainerLogFormat, "loss",
     [](int step, const std::string& loss) {
       return "[2024-05-02 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=" +
              At(step) + ", skipped=0, lr=[1e-05, 1e-05], mom=[(0.9, 0.95)]\nsteps: " + At(step) +
              " loss: " + loss + " iter time (s): 1.250 samples/sec: 12.500\n";
     }},
    {"fairseq.log", TrainerLogFormat, "loss",
     [](int step, const std::string& loss) {
       return "2024-05-02 10:00:00 | INFO | train_inner | {\"epoch\": 1, \"update\": 0.5, "
              "\"loss\": \"" +
              loss + "\", \"ppl\": \"12.5\", \"num_updates\": \"" + At(step) +
              "\", \"lr\": \"0.25\", \"gnorm\": \"1.25\", \"wall\": \"12\"}\n";
     }},
    {"plain.log", TrainerLogFormat, "loss",
     [](int step, const std::string& loss) {
       return "step " + At(step) + ": loss " + loss + " lr 0.001 norm 1.5\n";
     }},
    {"tensors.log", TrainerLogFormat, "loss",
     [](int step, const std::string& loss) {
       return "step " + At(step) + " loss=tensor(" + loss +
              ", device='cuda:0', grad_fn=<NllLossBackward0>) lr=0.001\n";
     }},
    {"olmo.log", TrainerLogFormat, "train/CrossEntropyLoss",
     [](int step, const std::string& loss) {
       return "2024-05-02 10:00:00 host:0 olmo.train:900 INFO [step=" + At(step) +
              "/1000,epoch=0,eta=1:23:45]\n    optim/total_grad_norm=0.81\n"
              "    train/CrossEntropyLoss=" +
              loss + "\n    throughput/total_tokens=4,194,304\n";
     }},
    {"keras.log", TrainerLogFormat, "val_loss",
     [](int step, const std::string& loss) {
       return "Epoch " + At(step) + "/30\n 50/100 [===>....] - ETA: 2s - loss: 0.7000\r" +
              "100/100 [==============================] - 5s 50ms/step - loss: 0.6250 - "
              "accuracy: " +
              "0.9062 - val_loss: " + loss + " - val_accuracy: 0.7500\n";
     }},
    {"keras2.log", TrainerLogFormat, "loss",
     [](int step, const std::string& loss) {
       return "Epoch " + At(step) + "/30\n100/100 - 5s - loss: " + loss +
              " - val_loss: 2.6250 - 5s/epoch - 50ms/step\n";
     }},
    {"metrics.jsonl", JsonLinesFormat, "train/loss",
     [](int step, const std::string& loss) {
       const bool number = loss.find_first_not_of("0123456789.") == std::string::npos;
       return "{\"_step\": " + At(step) +
              ", \"train\": {\"loss\": " + (number ? loss : "\"" + loss + "\"") +
              "}, \"lr\": 0.001}\n";
     }},
};

std::string Written(const Framework& framework, const std::string& bad) {
  std::string bytes = framework.before;
  for (int step = 1; step <= 30; ++step)
    bytes += framework.line(step, step == 30 ? bad : "2." + std::to_string(1000 - step));
  return bytes;
}

const PointFormat* TakenBy(const std::string& bytes, const char* name) {
  const PointFormat* taken = nullptr;
  for (const PointFormat* format : {&JsonLinesFormat(), &CsvFormat(), &TrainerLogFormat()}) {
    if (!Recognises(*format, bytes, name)) continue;
    EXPECT_EQ(taken, nullptr) << name << ": two formats take it";
    taken = format;
  }
  return taken;
}

TEST(Frameworks, HealthyLogs) {
  for (const Framework& framework : kFrameworks) {
    SCOPED_TRACE(framework.name);
    const std::string bytes = Written(framework, "2.5");
    EXPECT_EQ(TakenBy(bytes, framework.name), &framework.format());
    const PointsRead read = ReadPoints(framework.format(), bytes, {}, framework.name);
    const std::vector<double> loss = read.Values(framework.loss);
    ASSERT_EQ(loss.size(), 30u) << read.Text().substr(0, 500);
    for (const double value : loss) EXPECT_TRUE(value > 2 && value < 3) << value;
    EXPECT_EQ(read.Steps(framework.loss).back(), 30);
    EXPECT_FALSE(read.report.failed()) << read.Problems();
  }
}

TEST(Frameworks, ANonFiniteLoss) {
  for (const Framework& framework : kFrameworks) {
    for (const char* bad : {"nan", "NaN", "inf", "-inf"}) {
      SCOPED_TRACE(std::string(framework.name) + " " + bad);
      const std::string bytes = Written(framework, bad);
      EXPECT_EQ(TakenBy(bytes, framework.name), &framework.format());
      const PointsRead read = ReadPoints(framework.format(), bytes, {}, framework.name);
      const std::vector<double> loss = read.Values(framework.loss);
      ASSERT_EQ(loss.size(), 30u) << read.Text().substr(0, 500);
      EXPECT_FALSE(std::isfinite(loss.back()));
      EXPECT_EQ(std::isnan(loss.back()), std::tolower(bad[0]) == 'n');
      for (size_t i = 0; i + 1 < loss.size(); ++i) EXPECT_TRUE(std::isfinite(loss[i]));
      EXPECT_FALSE(read.report.failed()) << read.Problems();
    }
  }
}

// The only line of a job that died immediately.
TEST(Frameworks, OneLineAlone) {
  for (const Framework& framework : kFrameworks) {
    if (&framework.format() != &TrainerLogFormat()) continue;
    const std::string bytes = framework.before + framework.line(1, "nan");
    EXPECT_TRUE(Recognises(TrainerLogFormat(), bytes, framework.name)) << framework.name;
  }
}

}  // namespace
}  // namespace plumbline::audit
