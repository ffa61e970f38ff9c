// Tests the reasons for which a checkpoint is rejected, the stored open steps, and the detection of
// damage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "rules/engine/checkpoint.h"
#include "rules/engine/engine.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Batch Scalar(const std::string& run, uint32_t rank, int64_t step, double value) {
  v1::Batch batch = test::BatchOf(test::SourceOf(run, rank, 2));
  for (const char* op : {"loss", "loss_sum", "tokens"}) {
    test::AddScalar(&batch, op, step, std::string(op) == "tokens" ? 100 : value)
        .mutable_site()
        ->set_layer("head");
  }
  test::AddProgress(&batch, step);
  return batch;
}

class Checkpoints : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Make(EngineConfig config = {}) {
    auto engine = Engine::Create(config, [this](const v1::Verdict& verdict) {
      verdicts_.push_back(verdict.ShortDebugString());  // map fields in order of their keys
    });
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }
  // Returns an engine with two runs, each with a step that waits for its second rank.
  std::unique_ptr<Engine> Busy(EngineConfig config = {}) {
    auto engine = Make(std::move(config));
    for (const char* run : {"a", "b"}) {
      EXPECT_TRUE(engine->Add(Scalar(run, 0, 0, 1.5)).ok());
      EXPECT_TRUE(engine->Add(Scalar(run, 1, 0, 2.5)).ok());
      EXPECT_TRUE(engine->Add(Scalar(run, 0, 1, 3.5)).ok());
    }
    return engine;
  }
  std::vector<std::string> verdicts_;
};

TEST_F(Checkpoints, AFreshEngineGoesOnWhereTheOtherStood) {
  auto first = Busy();
  const std::string bytes = first->Checkpoint();
  auto second = Make();
  ASSERT_TRUE(second->Restore(bytes).ok());
  EXPECT_EQ(second->closed_step("a"), 0);
  EXPECT_EQ(second->Checkpoint(), bytes);
  verdicts_.clear();
  for (const char* run : {"a", "b"}) EXPECT_TRUE(first->Add(Scalar(run, 1, 1, 4.5)).ok());
  first->Finish();
  const auto expected = std::exchange(verdicts_, {});
  for (const char* run : {"a", "b"}) EXPECT_TRUE(second->Add(Scalar(run, 1, 1, 4.5)).ok());
  EXPECT_EQ(second->closed_step("b"), 1);
  second->Finish();
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(verdicts_, expected);
  EXPECT_EQ(second->coverage().judged, first->coverage().judged);
  EXPECT_EQ(second->coverage().inconclusive, first->coverage().inconclusive);
}

constexpr uint64_t kStream = 7, kSet = 0xa1;

// Returns a row of (head/loss, head/loss_sum, head/tokens, head/lr). The last is absent for rank 1.
v1::Batch Columns(uint32_t rank, int64_t step, bool declare) {
  v1::Batch batch = Scalar("run", rank, step, 0);
  batch.clear_evidence();
  batch.set_stream_id(kStream);
  if (declare) {
    v1::SeriesSet& set = *batch.add_series_sets();
    set.set_id(kSet);
    for (const char* op : {"loss", "loss_sum", "tokens", "lr"}) {
      v1::Site& site = *set.add_sites();
      site.set_layer("head");
      site.set_op(op);
    }
  }
  v1::SeriesRows& rows = *batch.add_series();
  rows.set_set(kSet);
  rows.add_source(0);
  rows.add_step(step);
  for (const double value : {2.0 + rank, 200.0, 100.0, 1e-4}) rows.add_value(value);
  if (rank == 1) rows.set_absent(std::string(1, 1 << 3));
  return batch;
}

// The rows passed to storage, as text: "1/0: 2 200 100 0.0001".
class StoredRows {
 public:
  void Watch(Engine& engine) {
    engine.SetOnSeries([this](const StepSeries& series) {
      for (const SeriesRow& row : series.rows) {
        std::string line = absl::StrCat(series.step, "/", row.rank, ":");
        for (size_t i = 0; i < series.columns->sites.size(); ++i)
          absl::StrAppend(&line, " ", row.present(i) ? absl::StrCat(row.values[i]) : "-");
        lines.push_back(line);
      }
    });
  }
  std::vector<std::string> lines;
};

TEST_F(Checkpoints, RowsOfOpenStepsAndDeclaredSetsAreKept) {
  StoredRows stored;
  auto first = Make();
  stored.Watch(*first);
  ASSERT_TRUE(first->Add(Columns(0, 0, true)).ok());
  ASSERT_TRUE(first->Add(Columns(1, 0, false)).ok());
  ASSERT_TRUE(first->Add(Columns(1, 1, false)).ok());  // waits for rank 0
  EXPECT_THAT(stored.lines, ElementsAre("0/0: 2 200 100 0.0001", "0/1: 3 200 100 -"));
  const std::string bytes = first->Checkpoint();

  auto second = Make();
  stored.Watch(*second);
  ASSERT_TRUE(second->Restore(bytes).ok());
  EXPECT_EQ(second->Checkpoint(), bytes);
  verdicts_.clear();
  stored.lines.clear();
  ASSERT_TRUE(first->Add(Columns(0, 1, false)).ok());
  first->Finish();
  const auto verdicts = std::exchange(verdicts_, {});
  const auto lines = std::exchange(stored.lines, {});
  // The set is not declared again.
  ASSERT_TRUE(second->Add(Columns(0, 1, false)).ok());
  second->Finish();
  EXPECT_THAT(lines, ElementsAre("1/0: 2 200 100 0.0001", "1/1: 3 200 100 -"));
  EXPECT_EQ(stored.lines, lines);
  EXPECT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts_, verdicts);
}

TEST_F(Checkpoints, WhatIsCountedStaysCounted) {
  auto first = Busy();
  v1::Batch late = Scalar("a", 0, 0, 9);  // not lost
  late.add_losses()->set_cause("queue-full");
  late.mutable_losses(0)->set_count(2);
  ASSERT_TRUE(first->Add(std::move(late)).ok());
  first->FinishRun("a");
  const Coverage counted = first->coverage();
  EXPECT_EQ(counted.dropped, 2u);
  auto second = Make();
  ASSERT_TRUE(second->Restore(first->Checkpoint()).ok());
  EXPECT_EQ(second->coverage().dropped, counted.dropped);
  EXPECT_EQ(second->coverage().judged, counted.judged);
  EXPECT_EQ(second->coverage().inconclusive, counted.inconclusive);
  EXPECT_EQ(second->closed_step("a"), -1);
}

TEST_F(Checkpoints, OtherRulesOptionsOrWindowsAreRefusedByName) {
  const std::string bytes = Busy()->Checkpoint();
  const auto refusal = [&](EngineConfig config) {
    const absl::Status status = Make(std::move(config))->Restore(bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({.window_steps = 32}),
              HasSubstr("made with other rules or options: expected 'window 32', found 'window "
                        "64'"));
  EXPECT_THAT(refusal({.rules = {"precision/*"}}), HasSubstr("expected 'precision/"));
  EXPECT_THAT(refusal({.settings = {"causality/train-infer-routing.tokens=100"}}),
              HasSubstr("tokens=100"));
  EngineConfig mapped;
  mapped.roles.Set("objective", SeriesRole::kLoss);
  EXPECT_THAT(refusal(std::move(mapped)), HasSubstr("series 9:objective"));
}

TEST_F(Checkpoints, AnEngineThatHasSeenAnythingIsNotReadInto) {
  const std::string bytes = Busy()->Checkpoint();
  EXPECT_EQ(Busy()->Restore(bytes).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(Checkpoints, ARefusedCheckpointLeavesTheEngineFresh) {
  std::string bytes = Busy()->Checkpoint();
  const std::string fresh = Make()->Checkpoint();
  // Restore reads nearly all of it before it fails.
  std::string cut = bytes.substr(0, bytes.size() - 5);
  const uint32_t checksum = Crc32c(cut.data(), cut.size());
  cut.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  auto engine = Make();
  EXPECT_EQ(engine->Restore(cut).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Checkpoint(), fresh);
  EXPECT_TRUE(engine->Restore(bytes).ok());
}

TEST_F(Checkpoints, EveryDamagedByteAndEveryCutIsRefused) {
  const std::string bytes = Busy()->Checkpoint();
  auto engine = Make();
  for (size_t i = 0; i < bytes.size(); i += 1 + i / 64) {
    EXPECT_FALSE(engine->Restore(std::string_view(bytes).substr(0, i)).ok()) << "cut at " << i;
    std::string damaged = bytes;
    damaged[i] ^= 1;
    EXPECT_FALSE(engine->Restore(damaged).ok()) << "damaged at " << i;
  }
  EXPECT_TRUE(engine->Restore(bytes).ok());
}

// Tests bytes with a valid checksum: for any content, Restore terminates.
TEST_F(Checkpoints, ForgedBytesNeitherCrashNorHang) {
  const std::string bytes = Busy()->Checkpoint();
  std::mt19937_64 random(5);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string forged = bytes.substr(0, bytes.size() - sizeof(uint32_t));
    for (int n = 0; n < 2; ++n) {
      char& byte = forged[random() % forged.size()];
      byte = static_cast<char>(random() % 2 == 0 ? 0xff : byte ^ (1 << random() % 8));
    }
    const uint32_t checksum = Crc32c(forged.data(), forged.size());
    forged.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
    refused += Make()->Restore(forged).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 200);  // most bytes are values, for which any content is valid
}

TEST(CheckpointEnvelope, AnotherFormatIsRefused) {
  const std::string bytes = SealCheckpoint("maker", [](Archive&) {});
  std::string later = bytes;
  later[16] = static_cast<char>(bytes[16] + 1);  // after the magic and its length
  EXPECT_THAT(std::string(OpenCheckpoint(later, "maker", [](Archive&) {}).message()),
              HasSubstr(", found " + std::to_string(later[16])));
  EXPECT_TRUE(OpenCheckpoint(bytes, "maker", [](Archive&) {}).ok());
}

TEST(CheckpointEnvelope, WhatTheStateDoesNotReadIsRefused) {
  uint32_t number = 7;
  const std::string bytes = SealCheckpoint("maker", [&](Archive& a) { a(number); });
  EXPECT_THAT(std::string(OpenCheckpoint(bytes, "maker", [](Archive&) {}).message()),
              HasSubstr("expected the end, found 4 bytes more"));
}

}  // namespace
}  // namespace plumbline::rules
