// Routing dumps: what does not fit is refused by name, what cannot be judged is inconclusive, and
// dumps of one step join.
#include "audit/readers/routing_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "audit/audit.h"
#include "audit/readers/safetensors.h"
#include "audit/readers/safetensors_header.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit {
namespace {

using testing::Audit;
using testing::AuditBytes;
using testing::Bytes;
using testing::Change;
using testing::DroplessDump;
using testing::Dump;
using ::testing::HasSubstr;
using testing::Judged;
using testing::LeakyDump;
using testing::Problems;
using testing::RawFile;
using testing::SetTo;
using testing::TempDir;

// ---- the routing dump ----------------------------------------------------------------------

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

TEST(RoutingDump, IntegersOfAnyWidthSayTheSame) {
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

// ---- several dumps -------------------------------------------------------------------------

TEST(Dumps, RanksAndCallsOfOneStepJoin) {
  const TempDir dir;
  for (int step = 0; step < 3; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      for (int call = 0; call < 2; ++call) {
        Dump dump = LeakyDump(256, 4, static_cast<uint32_t>(step * 10 + rank * 2 + call));
        dump.metadata["step"] = std::to_string(step);
        dump.metadata["rank"] = std::to_string(rank);
        dir.Write(
            "s" + std::to_string(step) + "/r" + std::to_string(rank) + "c" + std::to_string(call),
            dump.File());
      }
    }
  }
  const AuditResult result = Audit({dir.path()});
  EXPECT_EQ(result.inputs.size(), 12u);
  EXPECT_EQ(result.coverage.dropped, 0u) << "nothing may come late";
  ASSERT_FALSE(result.report.findings().empty());
  const v1::Finding& finding = *result.report.findings()[0];
  EXPECT_EQ(finding.site().step_first(), 0);
  EXPECT_EQ(finding.site().step_last(), 2);
  EXPECT_EQ(finding.site().ranks_size(), 2);
}

// What the engine is told: processes, calls, and progress once all of a step's dumps are out.
TEST(Dumps, BatchesSayWhoAndHowFar) {
  const TempDir dir;
  std::deque<InputReport> reports;
  std::vector<InputReport*> files;
  const auto add = [&](const char* name, const char* step, const char* rank) {
    Dump dump = DroplessDump();
    dump.metadata["step"] = step;
    dump.metadata["rank"] = rank;
    reports.emplace_back().path = dir.Write(name, dump.File());
    files.push_back(&reports.back());
  };
  add("d", "1", "0");  // the order of the files is not the order of the steps
  add("c", "0", "1");
  add("b", "0", "0");
  add("a", "0", "0");
  const auto sources = SafetensorsReader().Open(files);
  ASSERT_EQ(sources.size(), 1u);
  EXPECT_EQ(sources[0]->processes().size(), 2u);

  std::vector<v1::Batch> batches(4);
  for (v1::Batch& batch : batches) ASSERT_TRUE(sources[0]->Next(&batch));
  v1::Batch none;
  EXPECT_FALSE(sources[0]->Next(&none));
  const struct {
    int64_t step;
    uint32_t rank, call;
    int progress;
  } expected[] = {{0, 0, 0, 0}, {0, 0, 1, 0}, {0, 1, 0, 2}, {1, 0, 0, 2}};
  for (size_t i = 0; i < batches.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(batches[i].evidence_size(), 1);
    const v1::Evidence& evidence = batches[i].evidence(0);
    const v1::Source& process = batches[i].sources(static_cast<int>(evidence.source()));
    EXPECT_EQ(evidence.step(), expected[i].step);
    EXPECT_EQ(evidence.call(), expected[i].call);
    EXPECT_EQ(process.rank(), expected[i].rank);
    EXPECT_EQ(process.world_size(), 2u);
    EXPECT_EQ(batches[i].progress_size(), expected[i].progress);
    EXPECT_TRUE(evidence.routing().has_summary());
    EXPECT_EQ(evidence.sample_size(), 64u);
  }
  EXPECT_EQ(batches[2].progress(0).complete_through(), 0);
}

TEST(Dumps, ADumpThatVanishesIsAProblemAndItsStepStillEnds) {
  const TempDir dir;
  InputReport report;
  report.path = dir.Write("a", DroplessDump().File());
  const auto sources = SafetensorsReader().Open({&report});
  dir.Write("a", DroplessDump().File().substr(0, 300));
  v1::Batch batch;
  ASSERT_TRUE(sources.at(0)->Next(&batch));
  EXPECT_EQ(batch.evidence_size(), 0);
  EXPECT_EQ(batch.progress_size(), 1);
  EXPECT_TRUE(report.failed());
}

TEST(Dumps, ALoneRankOfALargerWorldIsJudged) {
  Dump dump = LeakyDump();
  dump.metadata["rank"] = "4000000000";
  const AuditResult result = AuditBytes(dump.File());
  EXPECT_FALSE(result.inputs_failed()) << Problems(result);
  EXPECT_FALSE(result.report.findings().empty());
}

// The size of the world, as the batches of these dumps state it.
std::vector<uint32_t> Worlds(const std::vector<std::map<std::string, std::string>>& dumps) {
  const TempDir dir;
  std::deque<InputReport> reports;
  std::vector<InputReport*> files;
  for (const auto& metadata : dumps) {
    Dump dump = DroplessDump();
    for (const auto& [key, value] : metadata) dump.metadata[key] = value;
    files.push_back(&reports.emplace_back());
    reports.back().path = dir.Write(std::to_string(files.size()), dump.File());
  }
  std::vector<uint32_t> worlds;
  for (const auto& source : SafetensorsReader().Open(files)) {
    v1::Batch batch;
    while (source->Next(&batch)) {
    }
    for (const v1::Source& process : source->processes()) worlds.push_back(process.world_size());
  }
  return worlds;
}

TEST(Dumps, TheWorldIsWhatTheySay) {
  using Sizes = std::vector<uint32_t>;
  EXPECT_EQ(Worlds({{}}), (Sizes{1}));
  EXPECT_EQ(Worlds({{{"rank", "3"}}}), (Sizes{0}));
  EXPECT_EQ(Worlds({{{"rank", "3"}, {"world_size", "8"}}}), (Sizes{8}));
  EXPECT_EQ(Worlds({{{"rank", "0"}, {"world_size", "4"}}, {{"rank", "1"}}}), (Sizes{4, 4}));
  // Too small for another dump's rank: not believed.
  EXPECT_EQ(Worlds({{{"rank", "0"}, {"world_size", "2"}}, {{"rank", "5"}}}), (Sizes{0, 0}));
  Dump dump = DroplessDump();
  dump.metadata["rank"] = "3";
  dump.metadata["world_size"] = "3";
  EXPECT_THAT(Problems(AuditBytes(dump.File())),
              HasSubstr("expected metadata world_size to be a whole number from 4 to"));
}

TEST(Dumps, OneDamagedDumpDoesNotSilenceTheOthers) {
  const TempDir dir;
  dir.Write("bad.safetensors", LeakyDump().File().substr(0, 1000));
  dir.Write("good.safetensors", LeakyDump().File());
  const AuditResult result = Audit({dir.path()});
  EXPECT_TRUE(result.inputs_failed());
  EXPECT_FALSE(result.report.findings().empty());
}

TEST(Dumps, OtherKindsInADirectoryAreListedNotRefused) {
  const TempDir dir;
  Dump other;
  other.tensors = {{"weights", "F32", {2}, std::string(8, '\0')}};
  const std::string path = dir.Write("w.safetensors", other.File());
  dir.Write("model.safetensors", RawFile("{}", ""));
  dir.Write("notes.txt", "hello");
  dir.Write("good.safetensors", DroplessDump().File());
  const AuditResult result = Audit({dir.path()});
  EXPECT_FALSE(result.inputs_failed()) << Problems(result);
  EXPECT_THAT(Problems(result), HasSubstr("expected metadata kind (routing"));
  for (const InputReport& input : result.inputs) {
    if (input.path.ends_with("notes.txt")) {
      EXPECT_EQ(input.format, "unknown");
      EXPECT_TRUE(input.problems.empty());
    }
  }
  EXPECT_TRUE(Audit({path}).inputs_failed()) << "named, it is a problem";
  EXPECT_TRUE(Audit({dir.path() + "/notes.txt"}).inputs_failed());
}

TEST(Dumps, AFileNamedTwiceCountsOnce) {
  const TempDir dir;
  const std::string path = dir.Write("a.safetensors", DroplessDump().File());
  const AuditResult once = Audit({path});
  const AuditResult twice = Audit({path, dir.path(), dir.path() + "/./a.safetensors"});
  EXPECT_EQ(twice.inputs.size(), 1u);
  EXPECT_EQ(twice.coverage.judged, once.coverage.judged);
}

}  // namespace
}  // namespace plumbline::audit
