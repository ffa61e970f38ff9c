// Tests batches of many rows that are judged without a copy: the verdicts and values equal those of
// single scalars.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "rules/engine/engine.h"
#include "tests/rules/engine_outcome.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

constexpr uint64_t kStream = 7000;

v1::Batch Message() {
  v1::Batch batch = test::BatchOf(test::SourceOf("run", 0, 1));
  batch.set_stream_id(kStream);
  return batch;
}

void DescribeProgress(v1::Batch* batch, int64_t complete_through) {
  test::AddProgress(batch, complete_through).set_newest_step(complete_through + 1);
}

v1::SeriesSet SetOf(uint64_t id, const std::vector<std::string>& ops) {
  v1::SeriesSet set;
  set.set_id(id);
  for (const std::string& op : ops) set.add_sites()->set_op(op);
  return set;
}

struct Value {
  std::string op;
  double value;
};

v1::Batch OneByOne(int64_t step, const std::vector<Value>& values) {
  v1::Batch batch = Message();
  for (const Value& value : values)
    test::AddScalar(&batch, value.op, step, value.value).set_sample_size(1);
  DescribeProgress(&batch, step);
  return batch;
}

v1::Batch ByColumns(int64_t step, const std::vector<Value>& values) {
  v1::Batch batch = Message();
  std::vector<std::string> ops;
  v1::SeriesRows& rows = *batch.add_series();
  rows.set_set(1);
  rows.add_source(0);
  rows.add_step(step);
  for (const Value& value : values) {
    ops.push_back(value.op);
    rows.add_value(value.value);
  }
  *batch.add_series_sets() = SetOf(1, ops);
  DescribeProgress(&batch, step);
  return batch;
}

// Returns the lists of one rank: some with a spike, a NaN or a rate of zero.
std::vector<std::vector<Value>> TwoListsOf(int64_t step) {
  const double x = static_cast<double>(step), kick = step > 160 && step < 170 ? 5 : 0;
  const double bad = step == 222 ? std::numeric_limits<double>::quiet_NaN() : 0;
  std::vector<std::vector<Value>> lists;
  if (step % 4 != 3)
    lists.push_back({{"loss", 3 + kick + 0.01 * std::sin(x) + bad},
                     {"lr", step < 250 ? 1e-3 : 0.0},
                     {"metric", x}});
  if (step % 3 == 0) lists.push_back({{"grad_norm", 1 + 0.1 * std::cos(x)}, {"layer/x", x}});
  if (step % 5 == 0) lists.push_back({{"layer/y", x}});  // not read by any rule
  return lists;
}

// Returns the outcome with `at_once` steps per batch, list by list; 0: single scalars. Each batch
// is complete up to `after` steps before its last step; the remaining steps are held.
Outcome JudgeAtOnce(int64_t at_once, int64_t after, bool store) {
  Outcome outcome;
  auto engine = *Engine::Create(
      {}, [&](const v1::Verdict& v) { outcome.verdicts.push_back(v.DebugString()); });
  if (store) engine->SetOnSeries(StoreIn(&outcome.stored));
  const int64_t steps = std::max<int64_t>(1, at_once);
  for (int64_t first = 0; first < 320; first += steps) {
    v1::Batch batch = Message();
    std::map<std::string, int> place;  // index of a list in the batch
    for (int64_t step = first; step < first + steps; ++step) {
      for (const std::vector<Value>& list : TwoListsOf(step)) {
        if (at_once == 0) {
          batch.mutable_evidence()->MergeFrom(OneByOne(step, list).evidence());
          continue;
        }
        const v1::Batch one = ByColumns(step, list);
        const auto [at, fresh] = place.try_emplace(list[0].op, batch.series_size());
        if (!fresh) {
          v1::SeriesRows& rows = *batch.mutable_series(at->second);
          rows.add_step(step);
          rows.mutable_value()->MergeFrom(one.series(0).value());
          continue;
        }
        const uint64_t set = list[0].op == "loss" ? 1 : list[0].op == "grad_norm" ? 2 : 3;
        *batch.add_series_sets() = one.series_sets(0);
        batch.mutable_series_sets()->rbegin()->set_id(set);
        *batch.add_series() = one.series(0);
        batch.mutable_series()->rbegin()->set_set(set);
      }
    }
    DescribeProgress(&batch, first + steps - 1 - after);
    EXPECT_TRUE(engine->Add(batch).ok());
  }
  engine->Finish();
  return outcome;
}

// Tests that rows that need not wait are judged in place, with the same verdicts as held rows.
TEST(EngineStraight, RowsOfManyStepsAreJudgedAsThoseOfOne) {
  const Outcome items = JudgeAtOnce(0, 0, true);
  EXPECT_GT(items.verdicts.size(), 5u);
  EXPECT_GT(items.stored.size(), 900u);
  for (const int64_t at_once : {1, 2, 32, 320}) {
    for (const int64_t after : {0, 1}) {
      const Outcome columns = JudgeAtOnce(at_once, after, true);
      EXPECT_EQ(columns.verdicts, items.verdicts) << at_once << ", " << after;
      EXPECT_EQ(columns.stored, items.stored);
      EXPECT_EQ(JudgeAtOnce(at_once, after, false).verdicts, items.verdicts);
    }
  }
}

// Tests a batch that also has progress of a new rank: its steps wait for that rank.
TEST(EngineStraight, ABatchThatSpeaksOfAnotherRankWaitsForIt) {
  int64_t closed = -1;
  auto engine = *Engine::Create({}, [](const v1::Verdict&) {});
  engine->SetOnSeries([&](const StepSeries& step) { closed = step.step; });
  v1::Batch alone = ByColumns(0, {{"loss", 3}});
  alone.mutable_sources(0)->set_world_size(0);  // unknown number of ranks
  ASSERT_TRUE(engine->Add(alone).ok());
  EXPECT_EQ(closed, 0);
  v1::Batch both = ByColumns(1, {{"loss", 3}});
  both.mutable_sources(0)->set_world_size(0);
  *both.add_sources() = test::SourceOf("run", 1, 0);
  v1::Progress& other = *both.add_progress();
  other.set_source(1);
  other.set_any_step(true);
  other.set_complete_through(0);
  other.set_newest_step(1);
  ASSERT_TRUE(engine->Add(both).ok());
  EXPECT_EQ(closed, 0);
  v1::Batch later = test::BatchOf(test::SourceOf("run", 1, 0));
  later.set_stream_id(kStream + 1);
  DescribeProgress(&later, 1);
  ASSERT_TRUE(engine->Add(later).ok());
  EXPECT_EQ(closed, 1);
}

}  // namespace
}  // namespace plumbline::rules
