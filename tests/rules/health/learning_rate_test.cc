// Tests health/learning-rate on schedules of trainers: none of them is reported; a rate that stays
// at zero is, at its first step, from single values or columns.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::Verdicts;
using testing::VerdictsOf;
using Schedule = std::function<double(int step)>;

constexpr char kRule[] = "health/learning-rate";

// The injector: the rate that each rank reports for each group.
struct Reported {
  int steps = 200;
  std::vector<std::vector<Schedule>> ranks;  // by rank, by group

  v1::Batch Batch(uint32_t attempt = 0) const {
    v1::Batch batch;
    for (uint32_t rank = 0; rank < ranks.size(); ++rank)
      *batch.add_sources() = SourceOf(rank, attempt);
    for (int step = 0; step < steps; ++step) {
      for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
        for (size_t group = 0; group < ranks[rank].size(); ++group) {
          const std::string op = group == 0 ? "lr" : absl::StrCat("lr.", group);
          test::AddScalar(&batch, op, step, ranks[rank][group](step)).set_source(rank);
        }
      }
    }
    return batch;
  }
  // The same as columns: one step at a time, one batch per rank.
  std::vector<v1::Batch> Columns() const {
    std::vector<v1::Batch> batches;
    for (int step = 0; step < steps; ++step) {
      for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
        v1::Batch batch = test::BatchOf(SourceOf(rank, 0));
        batch.set_stream_id(70 + rank);
        if (step == 0) Declare(rank, &batch);
        v1::SeriesRows& rows = *batch.add_series();
        rows.set_set(7);
        rows.add_source(0);
        rows.add_step(step);
        for (const Schedule& group : ranks[rank]) rows.add_value(group(step));
        test::AddProgress(&batch, step);
        batches.push_back(std::move(batch));
      }
    }
    return batches;
  }

 private:
  // The process itself reports the rate, so it was not rounded.
  v1::Source SourceOf(uint32_t rank, uint32_t attempt) const {
    v1::Source source = test::SourceOf("run", rank, World(), attempt);
    source.set_pid(7);
    return source;
  }
  uint32_t World() const { return static_cast<uint32_t>(ranks.size()); }
  void Declare(uint32_t rank, v1::Batch* batch) const {
    v1::SeriesSet& set = *batch->add_series_sets();
    set.set_id(7);
    for (size_t group = 0; group < ranks[rank].size(); ++group)
      set.add_sites()->set_op(group == 0 ? "lr" : absl::StrCat("lr.", group));
  }
};

// Returns a schedule of one of the usual kinds, over `steps` steps.
Schedule Usual(std::mt19937_64& random, int steps) {
  const double peak = std::pow(10.0, -2 - static_cast<double>(random() % 4));
  const int warm_up = static_cast<int>(random() % 30);
  const auto kind = random() % 5;
  return [=](int step) {
    if (step < warm_up) return peak * step / warm_up;
    const double t = static_cast<double>(step - warm_up) / (steps - 1 - warm_up);
    switch (kind) {
      case 0:
        return peak;
      case 1:
        return peak * (1 - t);  // 0 in the last step
      case 2:
        return peak * 0.5 * (1 + std::cos(3.14159265358979 * t));
      case 3:
        return t < 0.8 ? peak : peak * (1 - t) / 0.2;
      default:
        return peak * std::fabs(std::sin(20 * t));  // restarts
    }
  };
}

TEST(LearningRate, UsualSchedulesPass) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const Schedule schedule = Usual(random, 200);
    const Schedule half = [=](int step) { return schedule(step) / 2; };
    const Schedule frozen = [](int) { return 0.0; };
    const std::vector<Schedule> groups =
        i % 2 == 0 ? std::vector{schedule, half} : std::vector{schedule, frozen};
    const Verdicts verdicts = VerdictsOf(kRule, {Reported{.ranks = {groups, groups}}.Batch()});
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].kind(), v1::Verdict::KIND_PASS) << verdicts[0].reason();
  }
}

TEST(LearningRate, ZeroIsFoundAtItsFirstStep) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100; ++i) {
    const double peak = 1e-3 / static_cast<double>(1 + random() % 9);
    const int first = static_cast<int>(random() % 180);
    const bool poisoned = i % 3 == 0;
    const Schedule stops = [=](int step) {
      if (poisoned && step % 5 == 2) return std::nan("");
      return step < first ? peak : -0.0;
    };
    const Verdicts verdicts =
        VerdictsOf(kRule, {Reported{.steps = 220, .ranks = {{stops}}}.Batch()});
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].finding().level(), v1::LEVEL_ERROR) << first;
    const int onset = poisoned && first % 5 == 2 ? first + 1 : first;
    EXPECT_EQ(verdicts[0].site().step_first(), onset);
  }
}

// A rate that returns within 100 steps was not a fault. At the run's end or beginning ten steps
// suffice.
TEST(LearningRate, HowManyInARow) {
  const auto found = [](int first, int zeros, int steps) {
    const Schedule gap = [=](int step) { return step >= first && step < first + zeros ? 0 : 1e-3; };
    return testing::Findings(
        VerdictsOf(kRule, {Reported{.steps = steps, .ranks = {{gap}}}.Batch()}), kRule);
  };
  for (const int zeros : {1, 9, 10, 15, 98, 99, 100, 101, 120})
    EXPECT_EQ(found(20, zeros, 200), zeros >= 100 ? 1 : 0) << zeros;
  for (const int zeros : {1, 8, 9, 10, 11, 40}) {
    EXPECT_EQ(found(100, zeros, 100 + zeros), zeros >= 10 ? 1 : 0) << zeros;
    EXPECT_EQ(found(0, zeros, 100), zeros >= 10 ? 1 : 0) << zeros;
  }
}

TEST(LearningRate, RanksThatDifferAreNamed) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 30; ++i) {
    const Schedule schedule = Usual(random, 200);
    const int from = 40 + static_cast<int>(random() % 50);
    const Schedule odd = [=](int step) {
      return step < from ? schedule(step) : schedule(step) * 1.01 + 1e-6;
    };
    const Reported reported{.ranks = {{schedule}, {schedule}, {odd}, {schedule}}};
    const Verdicts verdicts = VerdictsOf(kRule, {reported.Batch()});
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].finding().level(), v1::LEVEL_WARNING);
    EXPECT_EQ(verdicts[0].site().step_first(), from);
  }
}

// Zeros at the start of a resume are not added to those before it.
TEST(LearningRate, ARestartBeginsAnew) {
  const Schedule ends = [](int step) { return step < 10 ? 1e-3 : 0; };
  const Schedule begins = [](int step) { return step >= 6 ? 1e-3 : 0; };
  v1::Batch first = Reported{.steps = 17, .ranks = {{ends}}}.Batch();
  test::AddProgress(&first, 16);
  const v1::Batch second = Reported{.steps = 30, .ranks = {{begins}}}.Batch(1);
  EXPECT_EQ(testing::Findings(VerdictsOf(kRule, {first, second}), kRule), 0);
}

// Live, by columns and in steps, gives the same as offline.
TEST(LearningRate, ColumnsGiveTheSame) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 10; ++i) {
    const Schedule usual = Usual(random, 60);
    const Schedule stops = [=](int step) { return step < 30 ? usual(step) : 0; };
    const Reported reported{.steps = 60,
                            .ranks = {{i % 2 == 0 ? usual : stops, usual}, {usual, usual}}};
    const Verdicts whole = VerdictsOf(kRule, {reported.Batch()});
    const Verdicts live = VerdictsOf(kRule, reported.Columns());
    ASSERT_EQ(whole.size(), live.size());
    for (size_t k = 0; k < whole.size(); ++k)
      EXPECT_EQ(whole[k].SerializeAsString().size(), live[k].SerializeAsString().size());
  }
}

TEST(LearningRate, NamesOfRates) {
  const auto verdicts = [](const std::string& op) {
    v1::Batch batch = test::BatchOf(test::SourceOf("run"));
    for (int step = 0; step < 12; ++step) test::AddScalar(&batch, op, step, 0);
    return testing::Findings(VerdictsOf(kRule, {batch}), kRule);
  };
  for (const char* op :
       {"lr", "LR", "lr.0", "lr.3", "train/lr", "learning_rate", "train/learning rate",
        "optimizer.Learning-Rate", "lr-AdamW/pg1", "actor/lr"})
    EXPECT_EQ(verdicts(op), 1) << op;
  for (const char* op : {"min_lr", "lr_scale", "loss", "lr_scheduler/last", "base.lr", "lrx", "clr",
                         "rate", "learning_rate_decay", "warmup_lr", "lr/factor"})
    EXPECT_EQ(verdicts(op), 0) << op;
}

}  // namespace
}  // namespace plumbline::rules
