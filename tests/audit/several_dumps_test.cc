// Dumps that are read together: those of one step are joined, the size of the world comes from
// their metadata, and a damaged dump or one of another kind does not affect the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "audit/readers/dumps/reader.h"
#include "audit/session/audit.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit {
namespace {

using test::TempFolder;
using testing::Audit;
using testing::AuditBytes;
using testing::DroplessDump;
using testing::Dump;
using ::testing::HasSubstr;
using testing::LeakyDump;
using testing::Problems;
using testing::RawFile;

TEST(Dumps, RanksAndCallsOfOneStepJoin) {
  const TempFolder dir;
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

// What the engine receives: processes, calls, and progress once all dumps of a step are read.
TEST(Dumps, BatchesStateTheSourceAndItsProgress) {
  const TempFolder dir;
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
  const TempFolder dir;
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
  const TempFolder dir;
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

TEST(Dumps, TheWorldIsWhatTheyState) {
  using Sizes = std::vector<uint32_t>;
  EXPECT_EQ(Worlds({{}}), (Sizes{1}));
  EXPECT_EQ(Worlds({{{"rank", "3"}}}), (Sizes{0}));
  EXPECT_EQ(Worlds({{{"rank", "3"}, {"world_size", "8"}}}), (Sizes{8}));
  EXPECT_EQ(Worlds({{{"rank", "0"}, {"world_size", "4"}}, {{"rank", "1"}}}), (Sizes{4, 4}));
  // Too small for another dump's rank: not used.
  EXPECT_EQ(Worlds({{{"rank", "0"}, {"world_size", "2"}}, {{"rank", "5"}}}), (Sizes{0, 0}));
  Dump dump = DroplessDump();
  dump.metadata["rank"] = "3";
  dump.metadata["world_size"] = "3";
  EXPECT_THAT(Problems(AuditBytes(dump.File())),
              HasSubstr("expected metadata world_size to be a whole number from 4 to"));
}

TEST(Dumps, OneDamagedDumpDoesNotSilenceTheOthers) {
  const TempFolder dir;
  dir.Write("bad.safetensors", LeakyDump().File().substr(0, 1000));
  dir.Write("good.safetensors", LeakyDump().File());
  const AuditResult result = Audit({dir.path()});
  EXPECT_TRUE(result.inputs_failed());
  EXPECT_FALSE(result.report.findings().empty());
}

TEST(Dumps, OtherKindsInADirectoryAreListedNotRefused) {
  const TempFolder dir;
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
  EXPECT_TRUE(Audit({dir.File("notes.txt")}).inputs_failed());
}

TEST(Dumps, AFileNamedTwiceCountsOnce) {
  const TempFolder dir;
  const std::string path = dir.Write("a.safetensors", DroplessDump().File());
  const AuditResult once = Audit({path});
  const AuditResult twice = Audit({path, dir.path(), dir.File("./a.safetensors")});
  EXPECT_EQ(twice.inputs.size(), 1u);
  EXPECT_EQ(twice.coverage.judged, once.coverage.judged);
}

}  // namespace
}  // namespace plumbline::audit
