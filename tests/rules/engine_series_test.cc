// Tests that scalars in columns are judged, counted and stored as single scalars are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "rules/engine/engine.h"
#include "rules/engine/rank_progress.h"
#include "tests/rules/engine_outcome.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kStream = 7000;

v1::Batch Message(uint32_t rank, uint32_t world) {
  v1::Batch batch = test::BatchOf(test::SourceOf("run", rank, world));
  batch.set_stream_id(kStream + rank);
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
  bool absent = false;
};

v1::Batch OneByOne(uint32_t rank, uint32_t world, int64_t step, const std::vector<Value>& values) {
  v1::Batch batch = Message(rank, world);
  for (const Value& value : values) {
    if (value.absent) continue;
    test::AddScalar(&batch, value.op, step, value.value).set_sample_size(1);
  }
  DescribeProgress(&batch, step);
  return batch;
}

v1::Batch ByColumns(uint32_t rank, uint32_t world, int64_t step, const std::vector<Value>& values,
                    bool declare) {
  v1::Batch batch = Message(rank, world);
  std::vector<std::string> ops;
  v1::SeriesRows& rows = *batch.add_series();
  rows.set_set(1);
  rows.add_source(0);
  rows.add_step(step);
  std::string absent((values.size() + 7) / 8, '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    ops.push_back(values[i].op);
    rows.add_value(values[i].absent ? 0 : values[i].value);
    if (values[i].absent) absent[i / 8] = static_cast<char>(absent[i / 8] | 1 << i % 8);
  }
  if (std::any_of(absent.begin(), absent.end(), [](char c) { return c != 0; }))
    rows.set_absent(absent);
  if (declare) *batch.add_series_sets() = SetOf(1, ops);
  DescribeProgress(&batch, step);
  return batch;
}

// Returns the values of a run whose ranks log unequal token counts and average their means, with
// falling loss scales, NaN and absent values among many series that no rule reads.
std::vector<Value> LoggedBy(uint32_t rank, int64_t step, std::mt19937_64& rng) {
  std::uniform_real_distribution<double> uniform;
  const double tokens[2] = {100, 900};
  const double mean[2] = {4.0 + 0.01 * static_cast<double>(step), 2.0};
  std::vector<Value> values = {{"loss", (mean[0] + mean[1]) / 2},
                               {"loss_sum", tokens[rank % 2] * mean[rank % 2]},
                               {"tokens", tokens[rank % 2]},
                               {"loss_scale", std::ldexp(65536.0, -static_cast<int>(step % 3))}};
  for (int i = 0; i < 7; ++i) {
    const double value =
        uniform(rng) < 0.1 ? std::numeric_limits<double>::quiet_NaN() : uniform(rng);
    values.push_back({"metric." + std::to_string(i), value, uniform(rng) < 0.2});
  }
  return values;
}

Outcome Judge(bool by_columns, uint64_t seed) {
  std::mt19937_64 rng(seed);
  Outcome outcome;
  auto engine = Engine::Create(
      {}, [&](const v1::Verdict& v) { outcome.verdicts.push_back(v.DebugString()); });
  EXPECT_TRUE(engine.ok());
  (*engine)->SetOnSeries(StoreIn(&outcome.stored));
  for (int64_t step = 0; step < 20; ++step) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const std::vector<Value> values = LoggedBy(rank, step, rng);
      const absl::Status status =
          (*engine)->Add(by_columns ? ByColumns(rank, 2, step, values, step == 0)
                                    : OneByOne(rank, 2, step, values));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  (*engine)->Finish();
  return outcome;
}

TEST(EngineSeries, AreJudgedAndStoredAsScalarsOneByOne) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Outcome columns = Judge(true, seed);
    const Outcome items = Judge(false, seed);
    EXPECT_EQ(columns.verdicts, items.verdicts);
    EXPECT_EQ(columns.stored, items.stored);
    EXPECT_GT(columns.stored.size(), 300u);
    const bool found = std::any_of(
        columns.verdicts.begin(), columns.verdicts.end(), [](const std::string& verdict) {
          return verdict.find("precision/loss-mean-of-means") != std::string::npos &&
                 verdict.find("KIND_FINDING") != std::string::npos;
        });
    EXPECT_TRUE(found);
  }
}

// Returns the scalars of one rank in one step, in two sets with interleaved names. Some steps have
// a third set, and one series is in two sets.
std::vector<std::vector<Value>> ListsOf(int64_t step, std::mt19937_64& rng) {
  std::uniform_real_distribution<double> uniform;
  const double x = static_cast<double>(step);
  const double kick = step > 60 && step < 64 ? 5 : 0;
  std::vector<std::vector<Value>> lists = {
      {{"loss", 3 + kick + 0.01 * uniform(rng)},
       {"lr", 1e-3 * (step < 90 ? 1 : 0), step % 7 == 3},
       {"metric", x}},
      {{"grad_norm", 1 + 0.1 * uniform(rng) + kick}, {"loss_scale", 65536.0}, {"mem", x}}};
  if (step % 5 == 0)
    lists.push_back({{"loss/val", step == 70 ? std::numeric_limits<double>::quiet_NaN() : 3.1}});
  if (step == 33) lists.push_back({Value(lists[0][0])});
  return lists;
}

Outcome JudgeLists(bool by_columns) {
  std::mt19937_64 rng(7);
  Outcome outcome;
  auto engine = *Engine::Create(
      {}, [&](const v1::Verdict& v) { outcome.verdicts.push_back(v.DebugString()); });
  engine->SetOnSeries(StoreIn(&outcome.stored));
  for (int64_t step = 0; step < 120; ++step) {
    v1::Batch batch = Message(0, 1);
    const auto lists = ListsOf(step, rng);
    for (size_t i = 0; i < lists.size(); ++i) {
      const v1::Batch one =
          by_columns ? ByColumns(0, 1, step, lists[i], true) : OneByOne(0, 1, step, lists[i]);
      batch.mutable_evidence()->MergeFrom(one.evidence());
      if (!by_columns) continue;
      const uint64_t set = lists[i].size() == 1 && step == 33 ? 9 : i + 1;
      *batch.add_series_sets() = one.series_sets(0);
      batch.mutable_series_sets(static_cast<int>(i))->set_id(set);
      *batch.add_series() = one.series(0);
      batch.mutable_series(static_cast<int>(i))->set_set(set);
    }
    DescribeProgress(&batch, step);
    EXPECT_TRUE(engine->Add(batch).ok());
  }
  engine->Finish();
  return outcome;
}

TEST(EngineSeries, RowsThatComeAgainAreJudgedAsThoseThatCameFirst) {
  const Outcome columns = JudgeLists(true), items = JudgeLists(false);
  EXPECT_EQ(columns.verdicts, items.verdicts);
  EXPECT_EQ(columns.stored, items.stored);
  for (const char* rule : {"health/loss-spike", "health/learning-rate", "health/loss-non-finite"}) {
    const bool found = std::any_of(columns.verdicts.begin(), columns.verdicts.end(),
                                   [&](const std::string& verdict) {
                                     return verdict.find(rule) != std::string::npos &&
                                            verdict.find("KIND_FINDING") != std::string::npos;
                                   });
    EXPECT_TRUE(found) << rule;
  }
}

// Returns the verdicts on two sets per rank. Rules read only one of them; some steps have only the
// other.
std::vector<std::string> JudgeTwoSets(bool store, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<std::string> verdicts;
  auto engine =
      *Engine::Create({}, [&](const v1::Verdict& v) { verdicts.push_back(v.DebugString()); });
  Stored stored;
  if (store) engine->SetOnSeries(StoreIn(&stored));
  for (int64_t step = 0; step < 40; ++step) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      std::vector<Value> read = LoggedBy(rank, step, rng);
      const std::vector<Value> unread(read.begin() + 4, read.end());
      read.resize(4);
      v1::Batch batch = ByColumns(rank, 2, step, read, true);
      const v1::Batch other = ByColumns(rank, 2, step, unread, true);
      if (step % 3 == 0) batch.clear_series();
      *batch.add_series_sets() = other.series_sets(0);
      batch.mutable_series_sets(1)->set_id(2);
      *batch.add_series() = other.series(0);
      batch.mutable_series(batch.series_size() - 1)->set_set(2);
      EXPECT_TRUE(engine->Add(batch).ok());
    }
  }
  EXPECT_EQ(stored.empty(), !store);
  engine->Finish();
  return verdicts;
}

// Tests that if a series is neither read nor stored, the engine does not keep it, and the verdicts
// are the same.
TEST(EngineSeries, VerdictsAreTheSameWhetherSeriesAreStored) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const std::vector<std::string> verdicts = JudgeTwoSets(false, seed);
    EXPECT_EQ(verdicts, JudgeTwoSets(true, seed));
    EXPECT_GT(verdicts.size(), 3u);
  }
}

class Malformed : public ::testing::Test {
 protected:
  void Refused(const v1::Batch& batch, const char* why) {
    const absl::Status status = engine_->Add(batch);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }
  v1::Batch Good() { return ByColumns(0, 1, 3, {{"a", 1}, {"b", 2}}, true); }

  std::unique_ptr<Engine> engine_ = *Engine::Create({}, [](const v1::Verdict&) {});
};

TEST_F(Malformed, RowsOfASetThatWasNotDeclared) {
  v1::Batch batch = Good();
  batch.clear_series_sets();
  Refused(batch, "series[0]: set 0000000000000001 was not declared on this stream");
  ASSERT_TRUE(engine_->Add(Good()).ok());
  EXPECT_TRUE(engine_->Add(batch).ok());
  batch.set_stream_id(kStream + 99);  // declared by another stream
  Refused(batch, "not declared");
}

TEST_F(Malformed, ASetDeclaredWithOtherSeries) {
  ASSERT_TRUE(engine_->Add(Good()).ok());
  EXPECT_TRUE(engine_->Add(Good()).ok());  // the same again
  v1::Batch batch = Good();
  *batch.mutable_series_sets(0) = SetOf(1, {"a", "c"});
  Refused(batch, "series_sets[0]: set 0000000000000001 was declared with other series");
}

TEST_F(Malformed, ShapesThatDoNotAgree) {
  v1::Batch batch = Good();
  batch.mutable_series(0)->add_value(1);
  Refused(batch, "expected values for 1 rows of 2 columns, found 3");
  batch = Good();
  batch.mutable_series(0)->set_absent("abc");
  Refused(batch, "expected 1 bytes of absent bits, found 3");
  batch = Good();
  batch.mutable_series(0)->set_source(0, 5);
  Refused(batch, "expected a source index below 1, found 5");
  batch = Good();
  batch.mutable_series(0)->set_step(0, -1);
  Refused(batch, "expected a step of at least 0");
  batch = Good();
  batch.mutable_series(0)->clear_source();
  Refused(batch, "expected one source or 1, found 0");
  batch = Good();
  batch.mutable_series_sets(0)->set_id(0);
  Refused(batch, "a set id that is not 0");
}

TEST(EngineSeries, RowsOfAClosedStepAreCountedByValue) {
  Stored stored;
  std::vector<v1::Verdict> verdicts;
  auto engine = *Engine::Create({}, [&](const v1::Verdict& v) { verdicts.push_back(v); });
  engine->SetOnSeries(StoreIn(&stored));
  uint64_t late = 0;
  engine->SetOnLate([&](const std::string&, const std::string&, uint64_t items) { late += items; });
  ASSERT_TRUE(engine->Add(ByColumns(0, 1, 1, {{"a", 1}, {"b", 2}, {"c", 3, true}}, true)).ok());
  ASSERT_TRUE(engine->Add(ByColumns(0, 1, 1, {{"a", 8}, {"b", 9}, {"c", 3, true}}, false)).ok());
  // Late values are not dropped: they are passed to storage, and the last value is stored.
  EXPECT_EQ(engine->coverage().dropped, 0u);
  EXPECT_EQ(late, 2u);
  EXPECT_EQ(stored.size(), 2u);
  EXPECT_EQ((stored[{1, 0, "a"}]), std::bit_cast<uint64_t>(8.0));
}

TEST(EngineSeries, DeclarationsAloneDoNotBeginARun) {
  int verdicts = 0;
  auto engine = *Engine::Create({}, [&](const v1::Verdict&) { ++verdicts; });
  ASSERT_TRUE(engine->Add(ByColumns(0, 1, 1, {{"loss", 1}}, true)).ok());
  engine->FinishRun("run");
  const int after = verdicts;
  EXPECT_GT(after, 0);
  v1::Batch hello = Message(0, 1);
  *hello.add_series_sets() = SetOf(1, {"loss"});
  ASSERT_TRUE(engine->Add(hello).ok());
  engine->FinishRun("run");
  EXPECT_EQ(verdicts, after);
}

// The definition, evaluated rank by rank.
struct Plain {
  struct Rank {
    int64_t complete = RankProgress::kNever, newest = RankProgress::kNever;
    bool done = false;
  };
  std::map<uint32_t, Rank> ranks;
  bool Covered(int64_t step, bool far_back) const {
    return std::all_of(ranks.begin(), ranks.end(), [&](const auto& entry) {
      const Rank& r = entry.second;
      if (r.done || r.complete >= step) return true;
      const bool backlog = r.newest != RankProgress::kNever && r.newest > r.complete + 1;
      return far_back && !backlog;
    });
  }
};

TEST(RankProgress, AnswersAsRankByRankWould) {
  std::mt19937_64 rng(11);
  for (int round = 0; round < 200; ++round) {
    RankProgress fast;
    Plain plain;
    for (int event = 0; event < 60; ++event) {
      const auto rank = static_cast<uint32_t>(rng() % 6);
      const auto complete =
          rng() % 5 == 0 ? RankProgress::kNever : static_cast<int64_t>(rng() % 12);
      const auto newest = static_cast<int64_t>(rng() % 14);
      switch (rng() % 8) {
        case 0:
          fast.Hear(rank);
          plain.ranks[rank];
          break;
        case 1:
          fast.Finish(rank);
          plain.ranks[rank].done = true;
          break;
        default:
          fast.Advance(rank, complete, newest);
          plain.ranks[rank].complete = std::max(plain.ranks[rank].complete, complete);
          plain.ranks[rank].newest = std::max(plain.ranks[rank].newest, newest);
      }
      for (int64_t step = 0; step < 13; ++step) {
        for (const bool far_back : {false, true})
          ASSERT_EQ(fast.Covered(step, far_back), plain.Covered(step, far_back));
        std::set<uint32_t> present;
        for (uint32_t r = 0; r < 6; ++r) {
          if (rng() % 4 == 0 && plain.ranks.contains(r)) present.insert(r);
        }
        std::vector<uint32_t> missing;
        for (uint32_t r = 0; r < 8; ++r) {
          const auto found = plain.ranks.find(r);
          const bool later = found == plain.ranks.end() || found->second.complete < step;
          if (later && !present.contains(r)) missing.push_back(r);
        }
        ASSERT_EQ(fast.Missing(step, 8, present, 64), missing);
        const std::vector<uint32_t> some = fast.Missing(step, 8, present, 2);
        ASSERT_LE(some.size(), 2u);
        ASSERT_EQ(some.empty(), missing.empty());
        ASSERT_TRUE(std::includes(missing.begin(), missing.end(), some.begin(), some.end()));
      }
    }
  }
}

// Tests that a finished run may continue: its streams return and do not declare their sets again.
TEST(SeriesSetsOfStreams, OutliveTheRunUntilTheStreamIsForgotten) {
  std::vector<v1::Verdict> verdicts;
  auto engine =
      *Engine::Create({.hosted = true}, [&](const v1::Verdict& v) { verdicts.push_back(v); });
  std::map<std::string, uint64_t> lost;
  engine->SetOnLost(
      [&](const std::string&, const std::string& cause, uint64_t items) { lost[cause] += items; });
  const std::vector<Value> values = {{"loss", 1.0}, {"grad_norm", 2.0}};
  ASSERT_TRUE(engine->Add(ByColumns(0, 1, 0, values, true)).ok());
  engine->FinishRun("run");
  EXPECT_TRUE(engine->Add(ByColumns(0, 1, 1, values, false)).ok());
  // The same applies to an engine restored from the checkpoint.
  engine->FinishRun("run");
  auto next = *Engine::Create({.hosted = true}, [](const v1::Verdict&) {});
  ASSERT_TRUE(next->Restore(engine->Checkpoint()).ok());
  EXPECT_TRUE(next->Add(ByColumns(0, 1, 2, values, false)).ok());
  // If the host forgets the stream, the stream must declare its sets again.
  EXPECT_THAT(engine->Streams(), ::testing::ElementsAre(kStream));
  engine->ForgetStream(kStream);
  const v1::Batch batch = ByColumns(0, 1, 3, values, false);
  EXPECT_THAT(std::string(engine->Add(batch).message()), HasSubstr("was not declared"));
  // Rejected values are counted as lost one by one and reported immediately.
  verdicts.clear();
  ASSERT_TRUE(engine->AddRefused(batch).ok());
  EXPECT_EQ(lost.at("engine-refused"), 2u);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].rule(), "meta/data-loss");
  EXPECT_EQ(verdicts[0].finding().cause().id(), "engine-refused");
  EXPECT_EQ(engine->closed_step("run"), 3) << "the rank is not waited for";
  ASSERT_TRUE(engine->Add(ByColumns(0, 1, 4, values, true)).ok());
}

}  // namespace
}  // namespace plumbline::rules
