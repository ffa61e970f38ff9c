// Tests bars of evaluations between bars of the training: an evaluation belongs to the step that
// the training had reached before it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tests/audit/point_reading.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoints;
using Steps = std::vector<int64_t>;

constexpr int kBarEpochs = 4, kTrainBatches = 100, kEvalBatches = 50;

struct BarForm {
  const char* training;    // description; %d is the epoch
  const char* evaluation;  // description
  const char* series;      // of the evaluation's loss
  bool redrawn = true;     // by a carriage return, not in lines
};

const BarForm kBarForms[] = {{"Epoch %d: ", "Evaluating: ", "val/loss"},
                             {"Epoch %d: ", "Evaluating: ", "val/loss", false},
                             {"", "Evaluating: ", "val/loss"},
                             {"Training: ", "Validation: ", "val/loss"},
                             {"Epoch %d/4: ", "Validating: ", "val/loss"},
                             {"Train Epoch %d: ", "Testing: ", "test/loss"},
                             {"train: ", "test: ", "test/loss"},
                             {"[Train] Epoch %d: ", "[Valid] Epoch: ", "val/loss"},
                             {"Epoch %d: ", "dev: ", "test/loss", false},
                             {"Epoch %d: ", "Validation DataLoader 0: ", "val/loss"},
                             {"Iteration: ", "Evaluating ", "val/loss"}};

std::string Bar(const std::string& description, int done, int total, double loss) {
  std::string drawn;
  for (int i = 0; i < 10 * done / total; ++i) drawn += "\u2588";
  return absl::StrFormat("%s%3d%%|%s%s| %d/%d [00:01<00:10, 5.10it/s, loss=%.4f]", description,
                         100 * done / total, drawn, std::string(10 - 10 * done / total, ' '), done,
                         total, loss);
}

double TrainLoss(int epoch, int batch) {
  return 2.5 - 1.2 * (kTrainBatches * epoch + batch) / (kBarEpochs * kTrainBatches);
}

// Returns the log. At batch `nan_at` of the second evaluation its loss is NaN.
std::string BarLog(const BarForm& form, int nan_at = -1) {
  std::string log;
  const auto draw = [&](const std::string& bar) { log += form.redrawn ? "\r" + bar : bar + "\n"; };
  for (int epoch = 0; epoch < kBarEpochs; ++epoch) {
    const std::string training = absl::StrReplaceAll(form.training, {{"%d", absl::StrCat(epoch)}});
    for (int i = 1; i <= kTrainBatches; ++i)
      draw(Bar(training, i, kTrainBatches, TrainLoss(epoch, i)));
    log += "\n";
    for (int i = 1; i <= kEvalBatches; ++i) {
      const bool lost = epoch == 1 && i == nan_at;
      draw(Bar(form.evaluation, i, kEvalBatches, lost ? std::nan("") : 3 + epoch + 0.001 * i));
    }
    log += "\n";
  }
  return log;
}

Steps EndsOfEpochs() {
  Steps steps;
  for (int epoch = 1; epoch <= kBarEpochs; ++epoch) steps.push_back(epoch * kTrainBatches);
  return steps;
}

TEST(EvaluationBars, BelongToTheStepBefore) {
  for (const BarForm& form : kBarForms) {
    SCOPED_TRACE(absl::StrCat(form.training, "|", form.evaluation));
    const PointsRead read = ReadPoints(TrainerLogFormat(), BarLog(form));
    EXPECT_EQ(read.Steps(form.series), EndsOfEpochs());
    EXPECT_EQ(read.Values(form.series), (std::vector<double>{3.05, 4.05, 5.05, 6.05}));
    ASSERT_EQ(read.Steps("loss").size(), size_t{kBarEpochs * kTrainBatches});
    EXPECT_EQ(read.Steps("loss").back(), kBarEpochs * kTrainBatches);
    EXPECT_EQ(read.points.size(), size_t{kBarEpochs * kTrainBatches + kBarEpochs});
    EXPECT_NE(read.Problems().find("4 bars of evaluations"), std::string::npos) << read.Problems();
  }
}

// A NaN within an evaluation is kept, although the last batch is finite.
TEST(EvaluationBars, KeepsWhatIsNotFinite) {
  const PointsRead read = ReadPoints(TrainerLogFormat(), BarLog(kBarForms[0], 7));
  ASSERT_EQ(read.Steps("val/loss"), (Steps{100, 200, 200, 300, 400}));
  EXPECT_TRUE(std::isnan(read.Values("val/loss")[1]));
}

// All batches of an evaluation are NaN: two values, the first one and the end. An evaluation before
// the training counts its own batches.
TEST(EvaluationBars, ManyNaNsAndOneBeforeTheTraining) {
  std::string log = "\n";
  for (int i = 1; i <= 5; ++i) log += Bar("Evaluating: ", i, 5, 3.5) + "\n";
  for (int i = 1; i <= 100; ++i) log += Bar("Epoch 0: ", i, 100, 2.5) + "\n";
  for (int i = 1; i <= 50; ++i) log += Bar("Evaluating: ", i, 50, std::nan("")) + "\n";
  const PointsRead read = ReadPoints(TrainerLogFormat(), log);
  EXPECT_EQ(read.Steps("val/loss"), (Steps{1, 2, 3, 4, 5, 100, 100}));
  EXPECT_NE(read.Problems().find("1 bars of evaluations"), std::string::npos) << read.Problems();
}

// A bar without a series of the training moves no step of it.
TEST(EvaluationBars, OtherBars) {
  std::string log;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int i = 1; i <= 100; ++i) log += Bar("", i, 100, 2.5) + "\n";
    for (int i = 1; i <= 10; ++i)
      absl::StrAppend(&log, "Sampling: ", 10 * i, "%|##| ", i, "/10 [00:01<00:10, nfe=20]\n");
  }
  const PointsRead read = ReadPoints(TrainerLogFormat(), log);
  EXPECT_EQ(read.Steps("loss").back(), 300);
  EXPECT_EQ(read.Steps("nfe").front(), 100);
  EXPECT_EQ(read.Steps("nfe").back(), 300);
}

// Without a bar of training, an evaluation counts its own batches.
TEST(EvaluationBars, Alone) {
  std::string log;
  for (int i = 1; i <= 50; ++i) log += Bar("Evaluating: ", i, 50, 2.5) + "\n";
  EXPECT_EQ(ReadPoints(TrainerLogFormat(), log).Steps("val/loss").size(), 50u);
}

// Keras's evaluate() draws a bar below that of the epoch, with another number of batches.
TEST(EvaluationBars, Keras) {
  std::string log;
  for (int epoch = 1; epoch <= 4; ++epoch) {
    absl::StrAppend(&log, "Epoch ", epoch, "/4\n");
    for (const int total : {100, 50}) {
      for (int i = 1; i <= total; ++i)
        absl::StrAppendFormat(&log, "\r%3d/%d [%s%s] - %s - loss: %.4f", i, total,
                              std::string(static_cast<size_t>(30 * i / total), '='),
                              std::string(static_cast<size_t>(30 - 30 * i / total), '.'),
                              i < total ? "ETA: 3s" : "3s 30ms/step", epoch + 0.01 * total);
      log += "\n";
    }
  }
  const PointsRead read = ReadPoints(TrainerLogFormat(), log);
  EXPECT_EQ(read.Steps("loss"), (Steps{1, 2, 3, 4}));
  EXPECT_EQ(read.Steps("val/loss"), (Steps{1, 2, 3, 4}));
  EXPECT_EQ(read.Values("val/loss")[0], 1.5);
}

TEST(EvaluationBars, Rich) {
  for (const char* name : {"Validation", "Testing"}) {
    std::string log;
    for (int epoch = 0; epoch < 4; ++epoch) {
      for (int i = 10; i <= 100; i += 10)
        absl::StrAppend(&log, "Epoch ", epoch, "/3 \u2501\u2501\u2501 ", i,
                        "/100 0:00:10 \u2022 0:00:10 5.10it/s loss: 2.5\n");
      for (int i = 10; i <= 50; i += 10)
        absl::StrAppend(&log, name, " \u2501\u2501\u2501 ", i,
                        "/50 0:00:10 \u2022 0:00:10 5.10it/s loss: ", 3 + epoch, ".5\n");
    }
    const PointsRead read = ReadPoints(TrainerLogFormat(), log);
    const std::string series = name[0] == 'V' ? "val/loss" : "test/loss";
    EXPECT_EQ(read.Steps(series), EndsOfEpochs()) << read.Text();
    EXPECT_EQ(read.Steps("loss").size(), 40u);
  }
}

}  // namespace
}  // namespace plumbline::audit
