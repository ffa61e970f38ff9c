// Dumps of tensors that are or will be stored with a scale for each block: the declaration,
// the verdicts, and the errors that name what does not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/block_formats.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit {
namespace {

using testing::AuditBytes;
using testing::Bytes;
using testing::Dump;
using testing::ExpectProblems;
using testing::Problems;
using testing::SetTo;
using testing::VerdictOf;

constexpr char kRule[] = "precision/format-fit";
constexpr int64_t kRows = 128, kColumns = 64;

std::vector<float> Normal(int outlier_every) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  std::vector<float> x;
  for (int i = 0; i < kRows * kColumns; ++i)
    x.push_back(static_cast<float>(normal(random) *
                                   (outlier_every > 0 && i % outlier_every == 0 ? 300 : 1)));
  return x;
}

Dump DumpOf(const std::vector<float>& x, std::map<std::string, std::string> metadata) {
  Dump dump;
  dump.metadata = std::move(metadata);
  dump.metadata["kind"] = "tensor";
  dump.metadata["layer"] = "layers.0";
  dump.tensors = {{"values", "F32", {kRows, kColumns}, Bytes(x)}};
  return dump;
}

// Codes of 2^(floor(log2 amax) - 2 + off), one for each 32 values.
Dump WithScales(Dump dump, const std::vector<float>& x, int off) {
  std::vector<uint8_t> codes;
  for (size_t i = 0; i < x.size(); i += 32) {
    float amax = 0;
    for (size_t k = i; k < i + 32; ++k) amax = std::max(amax, std::fabs(x[k]));
    codes.push_back(static_cast<uint8_t>(127 + std::ilogb(amax) - 2 + off));
  }
  dump.tensors.push_back({"scale", "U8", {kRows, kColumns / 32}, Bytes(codes)});
  return dump;
}

const v1::Verdict& FitOf(const AuditResult& result) {
  const v1::Verdict* verdict = VerdictOf(result, kRule);
  EXPECT_NE(verdict, nullptr) << Problems(result);
  static const v1::Verdict none;
  return verdict == nullptr ? none : *verdict;
}

v1::Finding FoundIn(const Dump& dump) {
  const AuditResult result = AuditBytes(dump.File());
  for (const v1::Finding* finding : result.report.findings()) {
    if (finding->rule() == kRule) return *finding;
  }
  ADD_FAILURE() << "nothing is found: " << FitOf(result).reason();
  return {};
}

TEST(TensorBlocks, FormatsAreNamed) {
  const std::vector<float> calm = Normal(0), wild = Normal(32);
  for (const char* name : {"mxfp4", "MXFP4", "nvfp4"}) {
    EXPECT_EQ(FitOf(AuditBytes(DumpOf(calm, {{"target_format", name}}).File())).kind(),
              v1::Verdict::KIND_PASS);
    EXPECT_EQ(FoundIn(DumpOf(wild, {{"target_format", name}})).cause().id(), "outlier-blocks")
        << name;
  }
  for (const char* name : {"mxfp8", "mxfp8_e5m2", "fp8-1x128"}) {
    EXPECT_EQ(FitOf(AuditBytes(DumpOf(calm, {{"target_format", name}}).File())).kind(),
              v1::Verdict::KIND_PASS)
        << name;
  }
  EXPECT_THAT(FitOf(AuditBytes(DumpOf(calm, {{"target_format", "fp8_128x128"}}).File())).reason(),
              ::testing::HasSubstr("few-blocks"))
      << "one tile";
  // Without a block, e4m3 is judged value by value, as before.
  EXPECT_THAT(FitOf(AuditBytes(DumpOf(calm, {{"target_format", "e4m3"}}).File())).reason(),
              ::testing::HasSubstr("few values are lost"));
  const Dump own = DumpOf(calm, {{"target_format", "e2m1"}, {"block", "4x16"}});
  EXPECT_THAT(FitOf(AuditBytes(own.File())).reason(),
              ::testing::HasSubstr("e2m1 in blocks of 4 x 16"));
}

TEST(TensorBlocks, RecordedScalesAreTaken) {
  const std::vector<float> x = Normal(0);
  const Dump dump = DumpOf(x, {{"target_format", "mxfp4"}});
  EXPECT_EQ(FitOf(AuditBytes(WithScales(dump, x, 0).File())).kind(), v1::Verdict::KIND_PASS);
  EXPECT_EQ(FoundIn(WithScales(dump, x, 3)).cause().id(), "stale-scale");
  EXPECT_EQ(FoundIn(WithScales(dump, x, -3)).cause().id(), "clipped-blocks");
}

// Two e2m1 values per byte, already stored.
TEST(TensorBlocks, PackedValuesAreUnpacked) {
  Dump dump = DumpOf({}, {{"target_format", "mxfp4"}});
  dump.tensors = {{"values",
                   "U8",
                   {kRows, kColumns / 2},
                   std::string(static_cast<size_t>(kRows * kColumns / 2), '\x11')}};
  EXPECT_EQ(FoundIn(dump).cause().id(), "stale-scale");
  dump.tensors[0].data.assign(dump.tensors[0].data.size(), '\x77');
  EXPECT_EQ(FoundIn(dump).cause().id(), "clipped-blocks");
}

TEST(TensorBlocks, WhatDoesNotFitIsNamed) {
  const std::vector<float> x = Normal(0);
  const Dump plain = DumpOf(x, {}),
             scaled = WithScales(DumpOf(x, {{"target_format", "mxfp4"}}), x, 0);
  ExpectProblems([&] { return plain; },
                 {{"not a number", SetTo("block", "32x"), "32, 1x128 or 128x128"},
                  {"none", SetTo("block", "0"), "32, 1x128 or 128x128"},
                  {"three", SetTo("block", "32x32x32"), "32, 1x128 or 128x128"}});
  ExpectProblems([&] { return scaled; },
                 {{"no blocks", SetTo("target_format", "bf16"), "or block, with scale"},
                  {"fewer", SetTo("block", "64"), "128 x 1 blocks"},
                  {"no format", SetTo("scale_format", "e3m2"), "scale_format"}});
}

}  // namespace
}  // namespace plumbline::audit
