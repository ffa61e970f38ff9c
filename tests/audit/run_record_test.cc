// Run records: whole, truncated, damaged, of several ranks and attempts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "audit/render/finding_json.h"
#include "audit/session/audit.h"
#include "base/framed_log.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/record_builder.h"
#include "tests/support/batches.h"

namespace plumbline::audit {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT: the builders

AuditResult AuditFiles(const std::vector<std::string>& files) {
  const TempFolder dir;
  for (size_t i = 0; i < files.size(); ++i) dir.Write("rank" + std::to_string(i), files[i]);
  return Audit({dir.path()});
}

TEST(RunRecord, WholeIsJudgedAndCounted) {
  const AuditResult result = AuditFiles({RecordFile({}, LeakyDump())});
  EXPECT_EQ(Problems(result), "");
  EXPECT_EQ(result.inputs[0].format, "run-record");
  EXPECT_EQ(result.inputs[0].records, 3u);
  ASSERT_FALSE(result.report.findings().empty());
  EXPECT_EQ(result.report.findings()[0]->rule(), "causality/moe-future-leak");
  EXPECT_EQ(result.report.findings()[0]->site().step_last(), 2);
}

TEST(RunRecord, SameFingerprintAsTheDump) {
  const TempFolder dir;
  Dump dump = LeakyDump();
  const AuditResult dumped = Audit({dir.Write("a.safetensors", dump.File())});
  RecordPlan plan;
  plan.first_step = 7;
  plan.steps = 1;
  const AuditResult recorded = AuditFiles({RecordFile(plan, dump)});
  ASSERT_FALSE(dumped.report.findings().empty());
  ASSERT_EQ(recorded.report.findings().size(), dumped.report.findings().size());
  for (size_t i = 0; i < dumped.report.findings().size(); ++i) {
    EXPECT_EQ(FindingJson(*recorded.report.findings()[i]),
              FindingJson(*dumped.report.findings()[i]));
  }
}

TEST(RunRecord, CutAnywhereIsNotedNotRefused) {
  const std::string whole = RecordFile({}, LeakyDump(32, 2));
  const uint64_t all =
      AuditFiles({whole}).coverage.judged + AuditFiles({whole}).coverage.inconclusive;
  uint64_t previous = 0;
  for (size_t size = 16; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    const AuditResult result = AuditFiles({whole.substr(0, size)});
    EXPECT_FALSE(result.inputs_failed()) << Problems(result);
    const uint64_t seen = result.coverage.judged + result.coverage.inconclusive;
    EXPECT_GE(seen, previous) << "a longer record has no fewer verdicts";
    EXPECT_LE(seen, all);
    previous = seen;
  }
  EXPECT_GT(previous, 0u);
}

TEST(RunRecord, DamageIsRefusedAndTheBatchesBeforeItAreJudged) {
  std::string file = RecordFile({}, LeakyDump());
  file[file.size() - 40] = static_cast<char>(file[file.size() - 40] ^ 0x10);
  const AuditResult result = AuditFiles({file});
  EXPECT_TRUE(result.inputs_failed());
  EXPECT_THAT(Problems(result), HasSubstr("rank0: byte "));
  EXPECT_THAT(Problems(result), HasSubstr(": expected "));
  EXPECT_FALSE(result.report.findings().empty());
}

constexpr int kHeader = static_cast<int>(FrameType::kRecordHeader);
constexpr int kBatch = static_cast<int>(FrameType::kBatch);

TEST(RunRecord, FramesThatAreNoneAreNamed) {
  const std::string header = HeaderPayload({});
  const std::string batch = Batches({}, LeakyDump())[0].SerializeAsString();
  v1::RecordHeader later;
  later.set_schema("plumbline.record/9");
  const struct {
    const char* name;
    std::vector<std::pair<int, std::string>> frames;
    const char* expected;
    bool judged;
  } cases[] = {
      {"no header",
       {{kBatch, batch}},
       "byte 16: expected a record header, found frame type 2",
       false},
      {"garbage header", {{kHeader, "\xFF\xFF"}}, "expected a record header", false},
      {"later schema",
       {{kHeader, later.SerializeAsString()}},
       "expected schema plumbline.record/1, found \"plumbline.record/9\"",
       false},
      {"garbage batch",
       {{kHeader, header}, {kBatch, "\xFF\xFF\xFF"}, {kBatch, batch}},
       "expected a batch of evidence",
       true},
      {"header again",
       {{kHeader, header}, {kHeader, header}, {kBatch, batch}},
       "expected a batch, found frame type 1",
       true},
      {"unknown type",
       {{kHeader, header}, {77, "x"}, {kBatch, batch}},
       "expected a batch, found frame type 77",
       true},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const AuditResult result = AuditFiles({FramesFile(c.frames)});
    EXPECT_TRUE(result.inputs_failed());
    EXPECT_THAT(Problems(result), HasSubstr(c.expected));
    EXPECT_EQ(!result.report.findings().empty() && result.coverage.judged > 0, c.judged);
  }
}

// The spool that the server has not taken yet is below the record, and its content is already in
// the record.
TEST(RunRecord, ASpoolNextToItIsLeftAlone) {
  const TempFolder dir;
  dir.Write("rank0", RecordFile({}, LeakyDump()));
  const std::string spool =
      FramesFile({{static_cast<int>(FrameType::kSpoolHeader), "its header"}, {kBatch, "a batch"}});
  dir.Write("00000000000000000001.pls", spool);
  const AuditResult result = Audit({dir.path()});
  EXPECT_FALSE(result.inputs_failed()) << Problems(result);
  EXPECT_FALSE(result.report.findings().empty());

  const TempFolder other;
  EXPECT_TRUE(Audit({other.Write("a.pls", spool)}).inputs_failed()) << "it was asked for";
  std::string damaged = spool;
  damaged[16 + 8] ^= 1;  // the byte that marks a batch
  EXPECT_TRUE(Audit({other.Write("a", damaged)}).inputs_failed());
}

TEST(RunRecord, AHeaderAloneIsASilentRun) {
  const AuditResult result = AuditFiles({FramesFile({{kHeader, HeaderPayload({})}})});
  EXPECT_FALSE(result.inputs_failed()) << Problems(result);
  ASSERT_EQ(result.report.findings().size(), 1u);
  EXPECT_EQ(result.report.findings()[0]->rule(), "meta/probe-coverage");
}

TEST(RunRecord, ABatchTheEngineRefusesIsAProblemAndTheRestIsJudged) {
  std::vector<v1::Batch> batches = Batches({}, LeakyDump());
  batches[1].mutable_evidence(0)->set_source(5);
  const AuditResult result = AuditFiles({RecordFile({}, batches)});
  EXPECT_TRUE(result.inputs_failed());
  EXPECT_THAT(Problems(result), HasSubstr("expected a batch that is consistent"));
  EXPECT_FALSE(result.report.findings().empty());
}

TEST(RunRecord, ACopyAddsNothing) {
  const std::string file = RecordFile({}, LeakyDump());
  const AuditResult once = AuditFiles({file});
  const AuditResult twice = AuditFiles({file, file});
  EXPECT_EQ(twice.coverage.judged, once.coverage.judged);
  EXPECT_FALSE(twice.inputs_failed());
  EXPECT_THAT(Problems(twice), HasSubstr("that another file also contains"));
}

std::vector<std::string> Ranks(int count, int64_t steps, const std::vector<int64_t>& ends = {}) {
  std::vector<std::string> files;
  for (int rank = 0; rank < count; ++rank) {
    RecordPlan plan;
    plan.rank = static_cast<uint32_t>(rank);
    plan.world_size = static_cast<uint32_t>(count);
    plan.stream_id = static_cast<uint64_t>(rank) + 1;
    plan.steps = ends.empty() ? steps : ends[static_cast<size_t>(rank)];
    plan.finished = plan.steps == steps;
    files.push_back(RecordFile(plan, DroplessDump(32, 4)));
  }
  return files;
}

// If files were read one after the other, the second rank would come after the window of 64 steps
// has closed.
TEST(RunRecord, RanksAreReadSideBySide) {
  const AuditResult result = AuditFiles(Ranks(3, 200));
  EXPECT_EQ(Problems(result), "");
  EXPECT_EQ(result.coverage.dropped, 0u);
  ASSERT_FALSE(result.report.verdicts().empty());
  for (const v1::Verdict* verdict : result.report.verdicts())
    EXPECT_EQ(verdict->site().ranks_size(), 3);
}

// A record whose batches hold `each` steps of one scalar, as a trainer with very short steps writes
// it.
std::string QuickRank(const RecordPlan& plan, int64_t each) {
  std::vector<v1::Batch> batches;
  for (int64_t step = 0; step < plan.steps; ++step) {
    if (step % each == 0) {
      v1::Batch& batch = batches.emplace_back(
          test::BatchOf(test::SourceOf(plan.run, plan.rank, plan.world_size, plan.attempt)));
      batch.set_stream_id(plan.stream_id);
      batch.set_sequence(batches.size());
    }
    test::AddScalar(&batches.back(), "loss", step, 1.0);
    if (step % each == each - 1 || step + 1 == plan.steps)
      test::AddProgress(&batches.back(), step).set_finished(step + 1 == plan.steps);
  }
  return RecordFile(plan, batches);
}

// One batch holds more steps than the window, and one rank of the world has no record.
TEST(RunRecord, NoRankIsLateBecauseAnotherIsReadBeforeIt) {
  for (const int64_t each : {64, 65, 150, 400}) {
    SCOPED_TRACE(each);
    std::vector<std::string> files;
    for (const uint32_t rank : {0u, 1u, 2u}) {
      RecordPlan plan;
      plan.rank = rank;
      plan.world_size = 4;
      plan.stream_id = rank + 1;
      plan.steps = rank == 2 ? 70 : 300;  // the last one stopped early
      files.push_back(QuickRank(plan, rank == 1 ? 7 : each));
    }
    const AuditResult result = AuditFiles(files);
    EXPECT_EQ(Problems(result), "");
    for (const v1::Finding* finding : result.report.findings())
      EXPECT_NE(finding->rule(), "meta/data-loss") << finding->explanation();
  }
}

TEST(RunRecord, OrderOfTheFilesDoesNotMatter) {
  std::vector<std::string> files = Ranks(2, 5);
  const AuditResult forward = AuditFiles(files);
  std::swap(files[0], files[1]);
  const AuditResult backward = AuditFiles(files);
  ASSERT_EQ(forward.report.verdicts().size(), backward.report.verdicts().size());
  for (size_t i = 0; i < forward.report.verdicts().size(); ++i) {
    EXPECT_EQ(VerdictJson(*forward.report.verdicts()[i]),
              VerdictJson(*backward.report.verdicts()[i]));
  }
}

TEST(RunRecord, ARankThatDiedDoesNotHoldTheOthersBack) {
  const AuditResult result = AuditFiles(Ranks(2, 150, {5, 150}));
  EXPECT_EQ(result.coverage.dropped, 0u);
  int64_t last = 0;
  for (const v1::Verdict* verdict : result.report.verdicts())
    last = std::max(last, verdict->site().step_last());
  EXPECT_EQ(last, 149);
}

TEST(RunRecord, ARestartSupersedesWhatItRepeats) {
  RecordPlan first;
  first.steps = 10;
  first.finished = false;
  RecordPlan second;
  second.attempt = 1;
  second.stream_id = 2;
  second.first_step = 8;
  second.steps = 4;
  const std::string a = RecordFile(first, DroplessDump(32, 4)),
                    b = RecordFile(second, DroplessDump(32, 4));
  // Attempts are read in ascending order, for any order of the arguments.
  const AuditResult forward = AuditFiles({a, b}), backward = AuditFiles({b, a});
  EXPECT_EQ(forward.coverage.judged, backward.coverage.judged);
  EXPECT_EQ(forward.coverage.dropped, 0u);
  EXPECT_EQ(backward.coverage.dropped, 0u);
  EXPECT_EQ(forward.report.verdicts()[0]->site().step_last(), 11);
  // The reader decides whether it was one run.
  EXPECT_THAT(forward.notes, ::testing::ElementsAre(HasSubstr("run demo: 2 attempts (0, 1)")));
  EXPECT_TRUE(AuditFiles({a}).notes.empty());
}

}  // namespace
}  // namespace plumbline::audit
