// Routing dumps: invalid ones are refused by name, those that cannot be judged are inconclusive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "audit/readers/dumps/routing.h"
#include "audit/session/audit.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit {
namespace {

using testing::AuditBytes;
using testing::Bytes;
using testing::Change;
using testing::DroplessDump;
using testing::Dump;
using ::testing::HasSubstr;
using testing::Judged;
using testing::LeakyDump;
using testing::Problems;
using testing::SetTo;
using testing::VerdictOf;

std::vector<Change> Refused() {
  return {
      {"no top_k", [](Dump& d) { d.metadata.erase("top_k"); }, "expected metadata top_k"},
      {"top_k zero", SetTo("top_k", "0"), "expected metadata top_k to be a whole number from 1"},
      {"top_k text", SetTo("top_k", "two"), "found \"two\""},
      {"top_k with a tail", SetTo("top_k", "2.0"), "found \"2.0\""},
      {"top_k too large", SetTo("top_k", "99999999999999999999"), "expected metadata top_k"},
      {"negative step", SetTo("step", "-1"), "expected metadata step to be a whole number"},
      {"rank text", SetTo("rank", "x"), "expected metadata rank"},
      {"score function", SetTo("score_function", "softmaxx"),
       "expected metadata score_function to be identity, softmax or sigmoid, found \"softmaxx\""},
      {"capacity", SetTo("capacity", "lots"),
       "expected metadata capacity to be none or a whole number"},
      {"capacity zero", SetTo("capacity", "0"), "expected metadata capacity"},
      {"mode", SetTo("mode", "training"), "expected metadata mode to be train or eval"},
      {"redacted key", SetTo("redacted_key", "0xzz"),
       "expected metadata redacted_key to be 1 to 16 hexadecimal digits, not 0"},
      {"redacted key zero", SetTo("redacted_key", "0"), "expected metadata redacted_key"},
      {"groups", SetTo("groups", "-2"), "expected metadata groups"},
      {"group score", SetTo("group_score", "mean"),
       "expected metadata group_score to be max or sum2"},
      {"pool", SetTo("pool", "batch"),
       "expected metadata pool to be microbatch, sequence, group, rank or world"},
      {"flatten", SetTo("flatten", "row-major"),
       "expected metadata flatten to be seq-major or batch-major"},
      {"bias captured", SetTo("bias_captured", "now"),
       "expected metadata bias_captured to be before or after"},
      {"unknown kind", SetTo("kind", "rooting"), "expected kind routing, reduction"},
      {"no kind, no scores",
       [](Dump& d) {
         d.metadata.erase("kind");
         d.Remove("router_logits");
       },
       "expected metadata kind"},
      {"no scores", [](Dump& d) { d.Remove("router_logits"); }, "found neither"},
      {"both scores",
       [](Dump& d) {
         auto t = d.Tensor("router_logits");
         t.name = "router_scores";
         d.tensors.push_back(t);
       },
       "found both"},
      {"integer scores", [](Dump& d) { d.Tensor("router_logits").dtype = "I32"; },
       "expected router_logits as F64, F32, F16 or BF16, found I32"},
      {"fp8 scores",
       [](Dump& d) {
         auto& t = d.Tensor("router_logits");
         t.dtype = "F8_E4M3";
         t.data.resize(t.data.size() / 4);
       },
       "found F8_E4M3"},
      {"scores of one axis", [](Dump& d) { d.Tensor("router_logits").shape = {256}; },
       "expected router_logits of shape [T,E]"},
      {"no experts",
       [](Dump& d) {
         auto& t = d.Tensor("router_logits");
         t.shape = {64, 0};
         t.data.clear();
       },
       "with at least one expert"},
      {"tokens without bytes",
       [](Dump& d) {
         auto& t = d.Tensor("router_logits");
         t.shape = {INT64_C(4611686018427387904), 0};
         t.data.clear();
       },
       "with at least one expert"},
      {"float indices", [](Dump& d) { d.Tensor("topk_indices").dtype = "F32"; },
       "expected topk_indices as an integer dtype"},
      {"indices of other rows",
       [](Dump& d) {
         auto& t = d.Tensor("topk_indices");
         t.shape = {32, 4};
       },
       "expected topk_indices of shape [T,k] = [64,2], found [32,4]"},
      {"another k", [](Dump& d) { d.metadata["top_k"] = "3"; },
       "expected topk_indices of shape [T,k] = [64,3]"},
      {"positions of two axes",
       [](Dump& d) {
         d.Tensor("position").shape = {32, 2};
       },
       "expected position of shape [T] = [64]"},
      {"wide mask",
       [](Dump& d) {
         d.tensors.push_back({"padding_mask", "I32", {64}, std::string(256, '\0')});
       },
       "expected padding_mask as BOOL or U8"},
      {"wide region",
       [](Dump& d) {
         d.tensors.push_back({"region", "I32", {64}, std::string(256, '\0')});
       },
       "expected region as BOOL or U8"},
      {"bias of other experts",
       [](Dump& d) {
         d.tensors.push_back({"expert_bias", "F32", {5}, std::string(20, '\0')});
       },
       "expected expert_bias of shape [E] = [4], found [5]"},
      {"probs of no shape",
       [](Dump& d) {
         d.tensors.push_back({"probs", "F32", {64, 3}, std::string(768, '\0')});
       },
       "expected probs of shape"},
  };
}

void ExpectRefused(const Change& change) {
  SCOPED_TRACE(change.name);
  Dump dump = DroplessDump();
  change.apply(dump);
  const AuditResult result = AuditBytes(dump.File());
  EXPECT_TRUE(result.inputs_failed());
  EXPECT_FALSE(Judged(result));
  EXPECT_THAT(Problems(result), HasSubstr(change.expected));
}

TEST(RoutingDump, WhatDoesNotFitIsRefusedByName) {
  for (const Change& change : Refused()) ExpectRefused(change);
}

TEST(RoutingDump, AMisspeltNameIsNotIgnored) {
  const std::vector<Change> changes = {
      {"swapped letters", [](Dump& d) { d.metadata["capactiy"] = "16"; },
       "expected metadata capacity, found \"capactiy\""},
      {"another case", [](Dump& d) { d.metadata["Pool"] = "microbatch"; },
       "expected metadata pool, found \"Pool\""},
      {"hyphen", [](Dump& d) { d.metadata["world-size"] = "8"; },
       "expected metadata world_size, found \"world-size\""},
      {"a letter more", [](Dump& d) { d.metadata["layers"] = "3"; },
       "expected metadata layer, found \"layers\""},
      {"tensor without its s", [](Dump& d) { d.Tensor("topk_indices").name = "topk_indice"; },
       "expected tensor topk_indices, found \"topk_indice\""},
      {"one word", [](Dump& d) { d.Tensor("sequence_id").name = "sequenceid"; },
       "expected tensor sequence_id, found \"sequenceid\""},
  };
  for (const Change& change : changes) ExpectRefused(change);
}

TEST(RoutingDump, WhatIsNotOursIsLeftAlone) {
  Dump dump = DroplessDump();
  for (const char* key : {"format", "model", "seed", "node", "git_commit", "o", "rng", "comment"}) {
    dump.metadata[key] = "x";
  }
  for (const char* name : {"hidden", "gate_weight", "loss", "x", "aux_probs"}) {
    dump.tensors.push_back({name, "U8", {3}, "abc"});
  }
  const AuditResult result = AuditBytes(dump.File());
  EXPECT_FALSE(result.inputs_failed()) << Problems(result);
  EXPECT_TRUE(Judged(result));
}

TEST(RoutingDump, APoolOfPromptsAloneIsNoLeak) {
  for (const char region : {'\0', '\1'}) {
    Dump dump = LeakyDump();
    const int64_t tokens = dump.Tensor("pool_id").shape[0];
    dump.tensors.push_back(
        {"region", "U8", {tokens}, std::string(static_cast<size_t>(tokens), region)});
    const AuditResult result = AuditBytes(dump.File());
    EXPECT_FALSE(result.inputs_failed()) << Problems(result);
    const v1::Verdict* verdict = VerdictOf(result, "causality/moe-future-leak");
    ASSERT_NE(verdict, nullptr);
    EXPECT_EQ(verdict->kind(), region == 0 ? v1::Verdict::KIND_FINDING : v1::Verdict::KIND_PASS);
  }
}

TEST(RoutingDump, AllProblemsAreNamedAtOnce) {
  Dump dump = DroplessDump();
  dump.metadata["pool"] = "x";
  dump.metadata["mode"] = "y";
  dump.Tensor("position").dtype = "F32";
  EXPECT_EQ(AuditBytes(dump.File()).inputs[0].problems.size(), 3u);
}

std::vector<Change> Unjudgeable() {
  return {
      {"index out of range", [](Dump& d) { d.Tensor("topk_indices").data[0] = 99; }, ""},
      {"negative index",
       [](Dump& d) { d.Tensor("topk_indices").data.replace(0, 4, "\xF0\xFF\xFF\xFF"); }, ""},
      {"k beyond E",
       [](Dump& d) {
         d.metadata["top_k"] = "6";
         d.Tensor("topk_indices") = {
             "topk_indices", "I32", {64, 6}, Bytes(std::vector<int32_t>(64 * 6, 1))};
       },
       ""},
      {"no tokens",
       [](Dump& d) {
         for (auto& tensor : d.tensors) {
           tensor.shape[0] = 0;
           tensor.data.clear();
         }
       },
       ""},
      {"all scores NaN",
       [](Dump& d) {
         auto& t = d.Tensor("router_logits");
         t.data = Bytes(std::vector<float>(t.data.size() / 4, __builtin_nanf("")));
       },
       ""},
      {"a place twice",
       [](Dump& d) { d.Tensor("position").data.assign(d.Tensor("position").data.size(), '\0'); },
       ""},
      {"top_k of 2^31",
       [](Dump& d) {
         d.metadata["top_k"] = "2147483647";
         d.Remove("topk_indices");
       },
       ""},
      {"groups beyond experts",
       [](Dump& d) {
         d.metadata["groups"] = "4000000000";
         d.metadata["top_groups"] = "3";
       },
       ""},
  };
}

TEST(RoutingDump, WellFormedButUnusableIsInconclusiveNeverPass) {
  for (const Change& change : Unjudgeable()) {
    SCOPED_TRACE(change.name);
    Dump dump = DroplessDump();
    change.apply(dump);
    const AuditResult result = AuditBytes(dump.File());
    EXPECT_FALSE(result.inputs_failed()) << Problems(result);
    EXPECT_GT(result.coverage.inconclusive, 0u);
    for (const v1::Verdict* verdict : result.report.verdicts()) {
      EXPECT_NE(verdict->kind(), v1::Verdict::KIND_FINDING) << verdict->DebugString();
      const bool future = verdict->rule() == "causality/moe-future-leak";
      if (future) {
        EXPECT_EQ(verdict->kind(), v1::Verdict::KIND_INCONCLUSIVE) << verdict->DebugString();
      }
    }
  }
}

template <typename To, typename From>
void Widen(Dump& dump, const char* name, const char* dtype) {
  auto& tensor = dump.Tensor(name);
  std::vector<To> wide;
  for (size_t i = 0; i < tensor.data.size(); i += sizeof(From)) {
    From value;
    std::memcpy(&value, &tensor.data[i], sizeof value);
    wide.push_back(static_cast<To>(value));
  }
  tensor.dtype = dtype;
  tensor.data = Bytes(wide);
}

TEST(RoutingDump, IntegersOfAnyWidthGiveTheSame) {
  const std::string fingerprint =
      AuditBytes(LeakyDump().File()).report.findings().at(0)->fingerprint();
  const std::vector<std::function<void(Dump&)>> widths = {
      [](Dump& d) { Widen<int8_t, int64_t>(d, "topk_indices", "I8"); },
      [](Dump& d) { Widen<uint8_t, int64_t>(d, "topk_indices", "U8"); },
      [](Dump& d) { Widen<int16_t, int64_t>(d, "topk_indices", "I16"); },
      [](Dump& d) { Widen<uint32_t, int64_t>(d, "topk_indices", "U32"); },
      [](Dump& d) { Widen<uint64_t, int64_t>(d, "topk_indices", "U64"); },
      [](Dump& d) { Widen<int64_t, int32_t>(d, "position", "I64"); },
      [](Dump& d) { Widen<uint16_t, int32_t>(d, "sequence_id", "U16"); },
      [](Dump& d) { d.Tensor("keep_mask").dtype = "U8"; },
      [](Dump& d) { Widen<double, float>(d, "router_logits", "F64"); },
  };
  for (size_t i = 0; i < widths.size(); ++i) {
    SCOPED_TRACE(i);
    Dump dump = LeakyDump();
    widths[i](dump);
    const AuditResult result = AuditBytes(dump.File());
    EXPECT_FALSE(result.inputs_failed()) << Problems(result);
    ASSERT_FALSE(result.report.findings().empty());
    EXPECT_EQ(result.report.findings()[0]->fingerprint(), fingerprint);
    EXPECT_EQ(result.report.findings()[0]->level(), v1::LEVEL_ERROR);
  }
}

TEST(RoutingDump, KindIsInferredFromScores) {
  Dump dump = LeakyDump();
  dump.metadata.erase("kind");
  EXPECT_FALSE(AuditBytes(dump.File()).report.findings().empty());
}

TEST(RoutingDump, OpIsRoutingUnlessNamed) {
  Dump dump = LeakyDump();
  EXPECT_EQ(AuditBytes(dump.File()).report.findings().at(0)->site().op(), "routing");
  dump.metadata["op"] = "gate";
  EXPECT_EQ(AuditBytes(dump.File()).report.findings().at(0)->site().op(), "gate");
}

}  // namespace
}  // namespace plumbline::audit
