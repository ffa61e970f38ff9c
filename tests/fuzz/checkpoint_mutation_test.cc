// Checkpoints with random damage: the same thousands in every run.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "audit/checkpoints/equality.h"
#include "audit/session/audit.h"
#include "tests/audit/audit_dumps.h"
#include "tests/fuzz/audit_bytes.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/torch_zip.h"

namespace plumbline::audit {
namespace {

void AuditAsCheckpoint(const std::string& bytes) {
  for (const char* format : {"", "checkpoint"}) {
    AuditBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), format);
  }
}

std::string Damaged(const std::string& bytes, std::mt19937& random) {
  using namespace std::string_view_literals;
  return MutateWith(bytes, "\0\xFF\x7F\x80(.tR}Qqhc\x93\x8a\x8dPK"sv, random);
}

TEST(CheckpointMutation, WhatIsDamagedIsWhole) {
  const test::TempFolder folder;
  const AuditResult result = testing::Audit({folder.Write("m.pt", TorchZip(CheckpointPickle()))});
  EXPECT_EQ(testing::Problems(result), "");
  EXPECT_EQ(result.inputs[0].format, "checkpoint");
  EXPECT_EQ(result.inputs[0].records, 3u);
  EXPECT_TRUE(testing::Judged(result));
}

TEST(CheckpointMutation, Bytes) {
  std::mt19937 random(1);
  const std::string file = TorchZip(CheckpointPickle());
  const FuzzRounds rounds(1500);
  for (int i = 0; rounds.Due(i); ++i) AuditAsCheckpoint(Damaged(file, random));
}

// Only the pickle changes; the zip matches it.
TEST(CheckpointMutation, Pickle) {
  std::mt19937 random(2);
  const std::string pickle = CheckpointPickle();
  const FuzzRounds rounds(3000);
  for (int i = 0; rounds.Due(i); ++i) AuditAsCheckpoint(TorchZip(Damaged(pickle, random)));
}

// Damages one of two equal files. The comparison may find a difference, a problem or nothing.
TEST(CheckpointMutation, Equality) {
  const test::TempFolder folder;
  const auto equality = [&](const std::string& pickle) -> absl::StatusOr<Equality> {
    const std::string whole = folder.Write("a.pt", TorchZip(ValuesPickle()));
    const auto a = ReadCheckpointSide(whole);
    const auto b = ReadCheckpointSide(folder.Write("b.pt", TorchZip(pickle)));
    if (!a.ok()) return a.status();
    if (!b.ok()) return b.status();
    return ExpectEqual(**a, **b, NamesMap(), [](size_t) {});
  };
  const absl::StatusOr<Equality> same = equality(ValuesPickle());
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(same->equal());
  EXPECT_EQ(same->tensors, 1u);
  EXPECT_GE(same->values, 18u);
  EXPECT_TRUE(same->aside.empty());
  std::mt19937 random(3);
  const FuzzRounds rounds(600);
  size_t compared = 0;
  for (int i = 0; rounds.Due(i); ++i) {
    const absl::StatusOr<Equality> other = equality(Damaged(ValuesPickle(), random));
    compared += other.ok() ? 1 : 0;
  }
  EXPECT_GT(compared, 20u);
}

}  // namespace
}  // namespace plumbline::audit
