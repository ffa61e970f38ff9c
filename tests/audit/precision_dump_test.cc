// Dumps of kind tensor and update: invalid ones are refused by name, valid ones are judged like the
// same evidence from a live run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "base/half.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit {
namespace {

using test::TempFolder;
using testing::Audit;
using testing::AuditBytes;
using testing::Bytes;
using testing::Change;
using testing::Dump;
using testing::ExpectProblems;
using testing::Problems;
using testing::SetTo;
using testing::VerdictOf;

std::vector<uint16_t> Bf16(const std::vector<double>& values) {
  std::vector<uint16_t> out;
  for (const double x : values) out.push_back(FloatToBF16(static_cast<float>(x)));
  return out;
}

// Approximately normal: the sum of twelve uniform values.
std::vector<double> Normal(size_t n, double sd, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> out;
  for (size_t i = 0; i < n; ++i) {
    double x = -6;
    for (int k = 0; k < 12; ++k) x += static_cast<double>(random() >> 8) / (1 << 24);
    out.push_back(sd * x);
  }
  return out;
}

// bf16 weights whose updates are lost.
Dump LostUpdateDump(int64_t elements = 4096) {
  const auto n = static_cast<size_t>(elements);
  std::vector<double> before = Normal(n, 0.02, 1), after;
  std::vector<float> intended;
  for (double& x : before) x = BF16ToFloat(FloatToBF16(static_cast<float>(x)));
  for (const double x : Normal(n, 1e-5, 2)) intended.push_back(static_cast<float>(x));
  for (size_t i = 0; i < n; ++i)
    after.push_back(RoundToFormat(before[i] + static_cast<double>(intended[i]), DType::kBF16));
  Dump dump;
  dump.metadata = {{"kind", "update"}, {"layer", "layers.0.w"}, {"optimizer", "adamw"},
                   {"lr", "1e-5"},     {"beta2", "0.999"},      {"eps", "1e-8"},
                   {"step", "3"}};
  dump.tensors = {{"before", "BF16", {elements}, Bytes(Bf16(before))},
                  {"after", "BF16", {elements}, Bytes(Bf16(after))},
                  {"intended", "F32", {elements}, Bytes(intended)}};
  return dump;
}

Dump TensorDump(const std::string& role, std::vector<double> values, std::vector<int64_t> shape) {
  Dump dump;
  dump.metadata = {{"kind", "tensor"}, {"layer", "layers.0"}, {"role", role}};
  dump.tensors = {{"values", "BF16", std::move(shape), Bytes(Bf16(values))}};
  return dump;
}

Dump PositionDump() {
  std::vector<double> positions;
  for (int i = 0; i < 4096; ++i) positions.push_back(i);
  return TensorDump("positions", positions, {1, 4096});
}

v1::Verdict::Kind KindOf(const AuditResult& result, const std::string& rule) {
  const v1::Verdict* verdict = VerdictOf(result, rule);
  return verdict == nullptr ? v1::Verdict::KIND_UNSPECIFIED : verdict->kind();
}

// The rule's finding, or an empty one.
v1::Finding FindingOf(const AuditResult& result, const std::string& rule) {
  for (const v1::Finding* finding : result.report.findings()) {
    if (finding->rule() == rule) return *finding;
  }
  ADD_FAILURE() << "no finding of " << rule;
  return {};
}

TEST(PrecisionDumps, ALostUpdateIsFound) {
  const AuditResult result = AuditBytes(LostUpdateDump().File());
  EXPECT_EQ(Problems(result), "");
  ASSERT_EQ(KindOf(result, "precision/lost-update"), v1::Verdict::KIND_FINDING);
  const v1::Verdict& verdict = *VerdictOf(result, "precision/lost-update");
  EXPECT_EQ(verdict.site().op(), "update");
  EXPECT_EQ(verdict.site().step_first(), 3);
  EXPECT_EQ(result.inputs[0].records, 3u);
}

TEST(PrecisionDumps, ALargeUpdateIsSampled) {
  const AuditResult result = AuditBytes(LostUpdateDump(1 << 20).File());
  ASSERT_EQ(KindOf(result, "precision/lost-update"), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(FindingOf(result, "precision/lost-update").sample_size(), 1u << 20);
}

TEST(PrecisionDumps, KindsAreRecognisedByTheirTensors) {
  Dump update = LostUpdateDump();
  update.metadata.erase("kind");
  EXPECT_EQ(KindOf(AuditBytes(update.File()), "precision/lost-update"), v1::Verdict::KIND_FINDING);
  Dump positions = PositionDump();
  positions.metadata.erase("kind");
  EXPECT_EQ(KindOf(AuditBytes(positions.File()), "precision/position-collision"),
            v1::Verdict::KIND_FINDING);
}

TEST(PrecisionDumps, PositionsAndFormats) {
  EXPECT_EQ(KindOf(AuditBytes(PositionDump().File()), "precision/position-collision"),
            v1::Verdict::KIND_FINDING);
  Dump small = TensorDump("activation", Normal(4096, 0.005, 4), {64, 64});
  small.metadata["target_format"] = "torch.float8_e4m3fn";
  EXPECT_EQ(KindOf(AuditBytes(small.File()), "precision/format-fit"), v1::Verdict::KIND_FINDING);
  small.metadata["target_format"] = "fp16";
  EXPECT_EQ(KindOf(AuditBytes(small.File()), "precision/format-fit"), v1::Verdict::KIND_PASS);
}

TEST(PrecisionDumps, ScalarAndEmptyTensorsAreRead) {
  EXPECT_EQ(Problems(AuditBytes(TensorDump("weight", {1.5}, {}).File())), "");
  EXPECT_EQ(Problems(AuditBytes(TensorDump("probabilities", {}, {0, 8}).File())), "");
  EXPECT_EQ(Problems(AuditBytes(TensorDump("positions", {}, {4, 0}).File())), "");
  Dump empty = LostUpdateDump(0);
  EXPECT_EQ(Problems(AuditBytes(empty.File())), "");
}

TEST(PrecisionDumps, RanksJoinAndAFlippedBitIsFound) {
  const TempFolder dir;
  std::vector<std::string> paths;
  for (int rank = 0; rank < 3; ++rank) {
    Dump dump = TensorDump("weight", Normal(8192, 0.02, 5), {64, 128});
    dump.metadata["rank"] = std::to_string(rank);
    dump.metadata["replicas"] = "dp";
    if (rank == 1) dump.tensors[0].data[2 * 5000 + 1] ^= 0x40;
    paths.push_back(dir.Write(std::to_string(rank) + ".safetensors", dump.File()));
  }
  const AuditResult result = Audit(paths);
  ASSERT_EQ(KindOf(result, "precision/replica-divergence"), v1::Verdict::KIND_FINDING);
  const v1::Finding f = FindingOf(result, "precision/replica-divergence");
  ASSERT_EQ(f.site().ranks_size(), 1);
  EXPECT_EQ(f.cause().id(), "bit-flip");
  EXPECT_EQ(f.site().ranks(0), 1u);
  EXPECT_EQ(f.witness().fields().at("element").number_value(), 5000);
}

TEST(PrecisionDumps, TheOrderOfObservationIsRead) {
  const TempFolder dir;
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) {
    Dump dump = TensorDump("activation", Normal(64, 1, 6), {64});
    dump.metadata["layer"] = std::string(1, static_cast<char>('c' - i));  // c, b, a
    dump.metadata["order"] = std::to_string(i + 1);
    if (i > 0) dump.tensors[0].data[1] = dump.tensors[0].data[0] = static_cast<char>(0x7f);
    if (i > 0) dump.tensors[0].data[0] = static_cast<char>(0xc0);
    paths.push_back(dir.Write(std::to_string(i) + ".safetensors", dump.File()));
  }
  const AuditResult result = Audit(paths);
  ASSERT_EQ(KindOf(result, "precision/non-finite"), v1::Verdict::KIND_FINDING);
  const v1::Finding f = FindingOf(result, "precision/non-finite");
  EXPECT_EQ(f.site().layer(), "b");
  EXPECT_EQ(f.assumptions_size(), 0);
}

TEST(PrecisionDumps, WhatDoesNotFitIsRefusedByName) {
  const std::vector<Change> updates = {
      {"no after", [](Dump& d) { d.Remove("after"); }, "expected a tensor after, found none"},
      {"no before", [](Dump& d) { d.Remove("before"); }, "expected a tensor before, found none"},
      {"another shape",
       [](Dump& d) {
         d.Tensor("after").shape = {64, 64};
       },
       "expected after of shape before's = [4096], found [64,64]"},
      {"another dtype", [](Dump& d) { d.Tensor("after").dtype = "F16"; },
       "expected after in the dtype of before, BF16, found F16"},
      {"integers", [](Dump& d) { d.Tensor("intended").dtype = "I32"; },
       "expected intended as F64, F32, F16, BF16, F8_E4M3 or F8_E5M2, found I32"},
      {"lr text", SetTo("lr", "fast"), "expected metadata lr to be a decimal number"},
      {"beta2 nan", SetTo("beta2", "nan"), "expected metadata beta2"},
      {"eps dtype wrong", SetTo("eps_dtype", "int8"),
       "expected metadata eps_dtype to be a floating"},
      {"misspelt key", SetTo("optimiser", "adam"), "expected metadata optimizer"},
      {"misspelt tensor",
       [](Dump& d) {
         auto t = d.Tensor("intended");
         t.name = "gradeint";
         d.tensors.push_back(t);
       },
       "expected tensor gradient"},
      {"order zero", SetTo("order", "0"), "expected metadata order"},
  };
  ExpectProblems([] { return LostUpdateDump(); }, updates);
  Dump named = LostUpdateDump();
  named.metadata["eps_dtype"] = "float";
  EXPECT_EQ(Problems(AuditBytes(named.File())), "");
  const std::vector<Change> tensors = {
      {"no values", [](Dump& d) { d.Tensor("values").name = "data"; },
       "expected a tensor values, found none"},
      {"role", SetTo("role", "weights"), "expected metadata role to be weight, gradient"},
      {"format", SetTo("target_format", "fp4"), "expected metadata target_format to be a floating"},
      {"misspelt", SetTo("replica", "dp"), "expected metadata replicas"},
  };
  ExpectProblems(PositionDump, tensors);
}

}  // namespace
}  // namespace plumbline::audit
