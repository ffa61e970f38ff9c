// Tests that the memory of the rules per run is bounded for any number of series, and that a series
// with few points needs little memory, also in a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "rules/engine/engine.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Batch Losses(int64_t step, int first, int count, double value = 1.0) {
  v1::Batch batch = test::BatchOf(test::SourceOf("run"));
  for (int i = first; i < first + count; ++i)
    test::AddScalar(&batch, absl::StrCat("loss/", i), step, value);
  test::AddProgress(&batch, step);
  return batch;
}

std::unique_ptr<Engine> Hosted(std::vector<v1::Verdict>* verdicts = nullptr) {
  EngineConfig config;
  config.hosted = true;
  config.run_bytes = uint64_t{1} << 30;
  return *Engine::Create(config, [verdicts](const v1::Verdict& v) {
    if (verdicts != nullptr) verdicts->push_back(v);
  });
}

#ifndef PLUMBLINE_SANITIZED  // mallinfo2 does not see the allocators of sanitizers
size_t HeapBytes() { return mallinfo2().uordblks + mallinfo2().hblkhd; }

// Regression test: a series of one point used 8,088 bytes, and 26,975 in a checkpoint.
TEST(SeriesBound, ALossOfFewPointsCostsLittle) {
  constexpr int kLosses = 5000;
  for (const int points : {1, 4}) {
    auto engine = Hosted();
    const size_t before = HeapBytes();
    for (int step = 0; step < points; ++step)
      ASSERT_TRUE(engine->Add(Losses(step, 0, kLosses)).ok());
    const auto each = static_cast<double>(HeapBytes() - before) / kLosses;
    const auto written = static_cast<double>(engine->Checkpoint().size()) / kLosses;
    EXPECT_LT(each, 6500) << points << " points";
    EXPECT_LT(written, 1900) << points << " points";
    EXPECT_GT(engine->rule_bytes("run"), 3000 * kLosses) << "they are not counted until weighed";
  }
}

// Regression test: they used 439 MiB after all rules had been set aside, gigabytes before, and 88
// MiB in a checkpoint.
TEST(SeriesBound, NamesWithoutEnd) {
  auto engine = Hosted();
  const size_t before = HeapBytes();
  constexpr int kLosses = 100'000;
  for (int first = 0; first < kLosses; first += 5000)
    ASSERT_TRUE(engine->Add(Losses(first / 5000, first, 5000)).ok());
  EXPECT_LT(HeapBytes() - before, size_t{170} << 20);
  EXPECT_LT(engine->Checkpoint().size(), size_t{40} << 20);
  EXPECT_EQ(engine->rules_set_aside(), 0u);
  EXPECT_EQ(engine->series_left_out("run"), kLosses - EngineConfig().most_series);
}
#endif

// Tests that a checkpoint is never in memory as a whole: each piece is the state of one rule for
// one run.
TEST(SeriesBound, ACheckpointGoesByPieces) {
  auto engine = Hosted();
  constexpr int kRuns = 8, kLosses = 2000;
  for (int run = 0; run < kRuns; ++run) {
    for (int step = 0; step < 3; ++step) {
      v1::Batch batch = Losses(step, 0, kLosses);
      for (v1::Source& source : *batch.mutable_sources())
        source.set_run("run-" + std::to_string(run));
      ASSERT_TRUE(engine->Add(std::move(batch)).ok());
    }
  }
  const std::string whole = engine->Checkpoint();
  std::string pieces;
  size_t largest = 0;
  engine->Checkpoint([&](std::string_view piece) {
    pieces.append(piece);
    largest = std::max(largest, piece.size());
  });
  EXPECT_EQ(pieces, whole);
  EXPECT_GT(whole.size(), size_t{8} << 20);
  EXPECT_LT(largest, whole.size() / 3);
}

struct Limited {
  explicit Limited(uint64_t most, bool hosted = true) {
    config.hosted = hosted;
    config.run_bytes = hosted ? uint64_t{1} << 30 : 0;
    config.most_series = most;
    Restart("");
  }
  void Restart(const std::string& checkpoint) {
    engine = *Engine::Create(config, [this](const v1::Verdict& v) { verdicts.push_back(v); });
    if (!checkpoint.empty()) {
      ASSERT_TRUE(engine->Restore(checkpoint).ok());
    }
  }
  // Returns the sites with a finding of the rule.
  std::vector<std::string> Found(const std::string& rule) const {
    std::vector<std::string> ops;
    for (const v1::Verdict& v : verdicts) {
      if (v.rule() == rule && v.kind() == v1::Verdict::KIND_FINDING) ops.push_back(v.site().op());
    }
    return ops;
  }
  std::vector<std::string> Limits(const std::string& rule) const {
    std::vector<std::string> reasons;
    for (const v1::Verdict& v : verdicts) {
      if (v.rule() == rule && v.reason().rfind("series-limit", 0) == 0)
        reasons.push_back(v.reason());
    }
    return reasons;
  }

  EngineConfig config;
  std::vector<v1::Verdict> verdicts;
  std::unique_ptr<Engine> engine;
};

constexpr char kNonFinite[] = "health/loss-non-finite";

// Tests that the first series are judged. Further series are counted and reported once when they
// appear, and with their number at the end of the run.
TEST(SeriesBound, TheFirstSeriesAreJudgedAndTheOthersAreReported) {
  Limited run(10);
  ASSERT_TRUE(run.engine->Add(Losses(0, 0, 10)).ok());
  EXPECT_THAT(run.Limits(kNonFinite), IsEmpty()) << "the healthy twin";
  ASSERT_TRUE(run.engine->Add(Losses(1, 10, 25)).ok());
  ASSERT_TRUE(run.engine->Add(Losses(2, 5, 1, NAN)).ok());
  ASSERT_TRUE(run.engine->Add(Losses(3, 12, 1, NAN)).ok());
  EXPECT_THAT(run.Found(kNonFinite), ElementsAre("loss/5"));
  EXPECT_EQ(run.engine->series_left_out("run"), 25u);
  EXPECT_EQ(run.engine->series_left_out(), 25u);
  ASSERT_EQ(run.Limits(kNonFinite).size(), 1u);
  EXPECT_THAT(run.Limits(kNonFinite)[0], HasSubstr("more than 10 series of role loss"));
  EXPECT_EQ(run.Limits("health/loss-spike").size(), 1u);
  EXPECT_THAT(run.Limits("precision/split-k"), IsEmpty()) << "it reads no losses";
  run.engine->Finish();
  ASSERT_EQ(run.Limits(kNonFinite).size(), 2u);
  EXPECT_THAT(run.Limits(kNonFinite)[1], HasSubstr("25 of 35 series of role loss"));
}

// Tests that many invented norm names do not prevent the loss from being judged.
TEST(SeriesBound, EachRoleHasItsOwn) {
  Limited run(10);
  v1::Batch batch = test::BatchOf(test::SourceOf("run"));
  for (int i = 0; i < 30; ++i)
    test::AddScalar(&batch, "grad_norm", 0, 1.0).mutable_site()->set_layer(absl::StrCat("l", i));
  test::AddProgress(&batch, 0);
  ASSERT_TRUE(run.engine->Add(batch).ok());
  EXPECT_EQ(run.engine->series_left_out("run"), 20u);
  ASSERT_TRUE(run.engine->Add(Losses(1, 0, 1, NAN)).ok());
  EXPECT_THAT(run.Found(kNonFinite), ElementsAre("loss/0"));
}

// Tests that if a loss is beyond the limit, a tensor at the same site does not make it judged.
TEST(SeriesBound, WhatElseASiteHasChangesNothing) {
  Limited run(10);
  ASSERT_TRUE(run.engine->Add(Losses(0, 0, 20)).ok());
  v1::Batch batch = Losses(1, 9, 1, NAN);  // the last of them by name
  v1::Evidence& tensor = *batch.add_evidence();
  *tensor.mutable_site() = batch.evidence(0).site();
  tensor.set_step(1);
  tensor.set_call(1);
  tensor.mutable_tensor()->mutable_summary()->set_count(16);
  ASSERT_TRUE(run.engine->Add(batch).ok());
  EXPECT_THAT(run.Found(kNonFinite), IsEmpty());
}

// Tests that the same series are judged after a restart, in an audit of the stored data, and in an
// audit of records with many rows at once.
TEST(SeriesBound, IsMetAtTheSamePlaceByAll) {
  const auto feed = [](Limited* run, bool restart) {
    for (int step = 0; step < 40; ++step) {
      ASSERT_TRUE(run->engine->Add(Losses(step, step, 4, step == 35 ? NAN : 1.0)).ok());
      ASSERT_TRUE(run->engine->Add(Losses(step, 8, 1, step == 38 ? NAN : 1.0)).ok());
      if (restart && step % 5 == 0) run->Restart(run->engine->Checkpoint());
    }
    run->engine->Finish();
  };
  const auto words = [](const Limited& run) {
    std::vector<std::string> words;
    for (const v1::Verdict& v : run.verdicts) words.push_back(v.DebugString());
    return words;
  };
  Limited plain(10), restarted(10), audit(10, false);
  feed(&plain, false);
  feed(&restarted, true);
  feed(&audit, false);
  EXPECT_EQ(words(plain), words(restarted));
  EXPECT_THAT(plain.Found(kNonFinite), ElementsAre("loss/8"));
  EXPECT_EQ(plain.Found(kNonFinite), audit.Found(kNonFinite));
  EXPECT_EQ(plain.Limits(kNonFinite), audit.Limits(kNonFinite));
}

TEST(SeriesBound, RowsKeepToIt) {
  Limited run(10, false);
  constexpr int kColumns = 30, kSteps = 400;
  v1::Batch batch = test::BatchOf(test::SourceOf("run"));
  batch.set_stream_id(7);
  v1::SeriesSet& set = *batch.add_series_sets();
  set.set_id(1);
  for (int i = 0; i < kColumns; ++i) set.add_sites()->set_op(absl::StrCat("loss/", 10 + i));
  v1::SeriesRows& rows = *batch.add_series();
  rows.set_set(1);
  rows.add_source(0);
  for (int step = 0; step < kSteps; ++step) {
    rows.add_step(step);
    for (int i = 0; i < kColumns; ++i)
      rows.add_value(step == 390 && (i == 3 || i == 20) ? NAN : 1.0 + 0.01 * ((step * 7 + i) % 5));
  }
  test::AddProgress(&batch, kSteps - 1);
  ASSERT_TRUE(run.engine->Add(batch).ok());
  run.engine->Finish();
  EXPECT_THAT(run.Found(kNonFinite), ElementsAre("loss/13"));
  EXPECT_EQ(run.Limits(kNonFinite).size(), 2u);
}

}  // namespace
}  // namespace plumbline::rules
