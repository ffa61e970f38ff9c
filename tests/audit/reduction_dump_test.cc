// Dumps of kind reduction: judged whole or rank by rank; invalid ones are refused by name and byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
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
using testing::Dump;
using ::testing::HasSubstr;
using testing::Problems;
using testing::VerdictOf;

constexpr int kRanks = 4;
constexpr int kSamples = 256;
constexpr int64_t kCount = 100000;

std::vector<uint16_t> Half(const std::vector<double>& values) {
  std::vector<uint16_t> out;
  for (const double x : values) out.push_back(FloatToF16(static_cast<float>(x)));
  return out;
}

// An fp16 ring in ascending rank order whose segment c begins at rank c.
struct Ring {
  std::vector<std::vector<double>> inputs{kRanks};
  std::vector<double> output;
  std::vector<int64_t> offsets;

  Ring() {
    std::mt19937 random(5);
    for (int i = 0; i < kSamples; ++i) {
      offsets.push_back(int64_t{i} * 389 % kCount);
      const auto segment = static_cast<int>(offsets.back() / (kCount / kRanks));
      for (int r = 0; r < kRanks; ++r) {
        const double x = 1 + static_cast<double>(random() % 100000) / 100000;
        inputs[static_cast<size_t>(r)].push_back(RoundToFormat(x, DType::kF16));
      }
      double sum = inputs[static_cast<size_t>(segment)].back();
      for (int hop = 1; hop < kRanks; ++hop) {
        const auto rank = static_cast<size_t>((segment + hop) % kRanks);
        sum = RoundToFormat(sum + inputs[rank].back(), DType::kF16);
      }
      output.push_back(sum);
    }
  }
};

Dump WholeDump() {
  const Ring ring;
  std::vector<double> inputs;
  for (const auto& row : ring.inputs) inputs.insert(inputs.end(), row.begin(), row.end());
  Dump dump;
  dump.metadata = {{"kind", "reduction"},
                   {"layer", "grads"},
                   {"op", "sum"},
                   {"step", "3"},
                   {"count", std::to_string(kCount)}};
  dump.tensors = {{"inputs", "F16", {kRanks, kSamples}, Bytes(Half(inputs))},
                  {"output", "F16", {kSamples}, Bytes(Half(ring.output))},
                  {"offsets", "I64", {kSamples}, Bytes(ring.offsets)}};
  return dump;
}

Dump RankDump(int rank) {
  const Ring ring;
  Dump dump = WholeDump();
  dump.metadata["rank"] = std::to_string(rank);
  dump.metadata["world_size"] = std::to_string(kRanks);
  dump.metadata["sequence"] = "17";
  dump.Tensor("inputs").shape = {kSamples};
  dump.Tensor("inputs").data = Bytes(Half(ring.inputs[static_cast<size_t>(rank)]));
  return dump;
}

std::string ModelOf(const AuditResult& result) {
  const v1::Verdict* verdict = VerdictOf(result, "precision/collective-sum");
  if (verdict == nullptr) return "no verdict";
  const auto& fields = verdict->details().fields();
  const auto model = fields.find("model");
  return model == fields.end() ? verdict->reason()
                               : model->second.struct_value().fields().at("name").string_value();
}

TEST(ReductionDumps, ARecordOfAllRanksIsReplayed) {
  const AuditResult result = AuditBytes(WholeDump().File());
  EXPECT_EQ(Problems(result), "");
  EXPECT_EQ(ModelOf(result), "ring");
  const v1::Verdict& verdict = *VerdictOf(result, "precision/collective-sum");
  EXPECT_EQ(verdict.kind(), v1::Verdict::KIND_FINDING);
  ASSERT_EQ(result.report.findings().size(), 1u);
  EXPECT_EQ(result.report.findings()[0]->level(), v1::LEVEL_NOTE);
  EXPECT_EQ(verdict.site().layer(), "grads");
  EXPECT_EQ(verdict.site().op(), "sum");
  EXPECT_EQ(verdict.site().step_first(), 3);
  EXPECT_EQ(result.inputs[0].records, 3u);
}

TEST(ReductionDumps, RecognisedByItsTensors) {
  Dump dump = WholeDump();
  dump.metadata.erase("kind");
  EXPECT_EQ(ModelOf(AuditBytes(dump.File())), "ring");
}

TEST(ReductionDumps, RanksAreJoined) {
  const TempFolder dir;
  std::vector<std::string> paths;
  for (int rank = 0; rank < kRanks; ++rank)
    paths.push_back(dir.Write(std::to_string(rank) + ".safetensors", RankDump(rank).File()));
  const AuditResult all = Audit(paths);
  EXPECT_EQ(Problems(all), "");
  EXPECT_EQ(ModelOf(all), "ring");
  EXPECT_EQ(VerdictOf(all, "precision/collective-sum")->site().ranks_size(), kRanks);
  paths.erase(paths.begin() + 2);
  EXPECT_THAT(ModelOf(Audit(paths)), HasSubstr("missing-ranks: rank 2 of the world"));
}

// A rank that reports another count is a finding about the run, not an error in the dump.
TEST(ReductionDumps, ACountOfItsOwnIsAMismatch) {
  const TempFolder dir;
  std::vector<std::string> paths;
  for (int rank = 0; rank < kRanks; ++rank) {
    Dump dump = RankDump(rank);
    if (rank == 1) dump.metadata["count"] = std::to_string(kCount - 64);
    paths.push_back(dir.Write(std::to_string(rank) + ".safetensors", dump.File()));
  }
  const AuditResult result = Audit(paths);
  EXPECT_EQ(Problems(result), "");
  EXPECT_THAT(ModelOf(result), HasSubstr("ranks-disagree"));
  const v1::Verdict* verdict = VerdictOf(result, "precision/collective-mismatch");
  ASSERT_NE(verdict, nullptr);
  ASSERT_EQ(verdict->kind(), v1::Verdict::KIND_FINDING);
  ASSERT_EQ(verdict->site().ranks_size(), 1);
  EXPECT_EQ(verdict->site().ranks(0), 1u);
}

TEST(ReductionDumps, WhatDoesNotFitIsNamed) {
  const std::vector<std::pair<std::function<void(Dump&)>, std::string>> kFaults = {
      {[](Dump& d) { d.Remove("inputs"); }, "expected a tensor inputs of shape [N,m], found none"},
      {[](Dump& d) { d.Remove("output"); }, "expected a tensor output of shape [m], found none"},
      {[](Dump& d) {
         d.Tensor("inputs").shape = {kRanks, kSamples / 2, 2};
       },
       "expected inputs of shape [N,m] or, for one rank, [m], found [4,128,2]"},
      {[](Dump& d) {
         d.Tensor("output").shape = {2, kSamples / 2};
       },
       "expected output of shape [N,m] = [4,256], found [2,128]"},
      {[](Dump& d) {
         d.Tensor("output").shape = {kSamples / 2};
         d.Tensor("output").data.resize(kSamples);
       },
       "expected output of shape [m] = [256], found [128]"},
      {[](Dump& d) { d.Tensor("output").dtype = "BF16"; },
       "expected output in the dtype of inputs, F16, found BF16"},
      {[](Dump& d) { d.Tensor("inputs").dtype = "I16"; }, "expected inputs as"},
      {[](Dump& d) {
         d.Tensor("offsets").shape = {kSamples / 2};
         d.Tensor("offsets").data.resize(kSamples / 2 * 8);
       },
       "expected offsets of shape [m] = [256], found [128]"},
      {[](Dump& d) { d.metadata["count"] = "100"; },
       "expected metadata count to be at least the 256 elements of inputs, found \"100\""},
      {[](Dump& d) { d.metadata["op"] = "max"; }, "expected metadata op to be sum or avg"},
      {[](Dump& d) { d.metadata["wire_dtype"] = "int32"; }, "expected metadata wire_dtype"},
      {[](Dump& d) { d.metadata["ring_order"] = "0,1,2"; },
       "expected metadata ring_order to be the 4 ranks of inputs"},
      {[](Dump& d) { d.metadata["ring_order"] = "0,one"; },
       "expected metadata ring_order to be a comma list of ranks"},
      {[](Dump& d) { d.metadata["prescale"] = "0"; },
       "expected metadata prescale to be a factor that is not 0"},
      {[](Dump& d) { d.metadata["wire_dtyp"] = "bf16"; },
       "expected metadata wire_dtype, found \"wire_dtyp\", which is not read"},
  };
  for (const auto& [fault, text] : kFaults) {
    Dump dump = WholeDump();
    fault(dump);
    const AuditResult result = AuditBytes(dump.File());
    EXPECT_THAT(Problems(result), HasSubstr(text));
    EXPECT_EQ(VerdictOf(result, "precision/collective-sum"), nullptr) << text;
  }
}

TEST(ReductionDumps, OffsetsOutOfRangeAreNamedByByte) {
  for (const int64_t wrong : {int64_t{-1}, kCount}) {
    Dump dump = WholeDump();
    std::vector<int64_t> offsets = Ring().offsets;
    offsets[7] = wrong;
    dump.Tensor("offsets").data = Bytes(offsets);
    const std::string file = dump.File();
    const size_t at = file.find(Bytes(std::vector<int64_t>{wrong}));
    const AuditResult result = AuditBytes(file);
    EXPECT_THAT(Problems(result),
                HasSubstr("byte " + std::to_string(at) +
                          ": expected offsets from 0 to 99999 (count - 1), found " +
                          std::to_string(wrong) + " at sample 7"));
    EXPECT_EQ(VerdictOf(result, "precision/collective-sum"), nullptr);
  }
}

// A ring order that is not a permutation is well-formed metadata that cannot be judged.
TEST(ReductionDumps, ARingOrderThatRepeatsARankIsInconclusive) {
  Dump dump = WholeDump();
  dump.metadata["ring_order"] = "0,1,1,2";
  EXPECT_THAT(ModelOf(AuditBytes(dump.File())), HasSubstr("bad-ring-order"));
}

}  // namespace
}  // namespace plumbline::audit
