// Rollout files as streams: compressed, several files, steps in and out of order, long ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "audit/readers/rollout/sequence.h"
#include "audit/readers/rollout/source.h"
#include "tests/audit/dump_builder.h"
#include "tests/audit/rollout_files.h"

namespace plumbline::audit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT: the builders
using Json = nlohmann::ordered_json;

std::string Steps(int64_t first, int64_t last, const std::string& name, int each = 2) {
  std::vector<Json> records;
  for (int64_t step = first; step <= last; ++step) {
    for (int i = 0; i < each; ++i)
      records.push_back(Rollout(step, name + std::to_string(step) + "." + std::to_string(i)));
  }
  return Lines(records);
}

// A complete step gets no more evidence, and all steps are complete at the end.
void ExpectOrderly(const RolloutRead& read) {
  int64_t complete = -1, newest = -1;
  for (const v1::Batch& batch : read.batches) {
    for (const v1::Evidence& item : batch.evidence()) {
      EXPECT_GT(item.step(), complete);
      newest = std::max(newest, item.step());
    }
    for (const v1::Progress& progress : batch.progress()) {
      EXPECT_GE(progress.complete_through(), complete);
      complete = progress.complete_through();
    }
  }
  EXPECT_EQ(complete, newest);
}

TEST(RolloutStream, CompressedByContent) {
  const std::string lines = Steps(0, 30, "s");
  const TempFolder dir;
  const RolloutRead plain = ReadRollouts({dir.Write("plain", lines)});
  for (const std::string& bytes :
       {Gzip(lines), Zstd(lines), Gzip(lines.substr(0, 1000)) + Gzip(lines.substr(1000)),
        Zstd(lines.substr(0, 1000)) + Zstd("") + Zstd(lines.substr(1000))}) {
    const RolloutRead read = ReadRollouts({dir.Write("packed", bytes)});
    EXPECT_EQ(read.problems(), "");
    EXPECT_EQ(read.inputs[0].bytes, bytes.size());
    ASSERT_EQ(read.batches.size(), plain.batches.size());
    for (size_t i = 0; i < plain.batches.size(); ++i)
      EXPECT_EQ(read.batches[i].SerializeAsString(), plain.batches[i].SerializeAsString());
  }
}

// A step is judged as a whole and held until then. Beyond a limit its sequences are left out, with
// the first such line and their number; other steps are not affected.
TEST(RolloutStream, AStepThatIsTooLargeIsCutAndReported) {
  const std::string small = Steps(0, 0, "s"), large = Steps(1, 1, "t", 200);
  const TempFolder dir;
  InputReport report;
  report.path = dir.Write("r.jsonl", small + large + Steps(20, 21, "u"));
  std::map<int64_t, size_t> sequences;
  v1::Batch batch;
  for (const auto& source : OpenRollouts(NativeColumns(), {&report}, 16 << 10)) {
    while (source->Next(&batch)) {
      for (const v1::Evidence& item : batch.evidence())
        sequences[item.step()] += static_cast<size_t>(item.logprobs().sequences_size());
    }
  }
  EXPECT_EQ(sequences[0], 2u);
  EXPECT_EQ(sequences[20], 2u);
  EXPECT_EQ(sequences[21], 2u);
  const size_t kept = sequences[1];
  EXPECT_GT(kept, 20u);
  EXPECT_LT(kept, 180u);
  EXPECT_EQ(report.records, kept + 6);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_TRUE(report.failed());
  EXPECT_THAT(report.problems[0].text,
              HasSubstr("expected at most 16 KiB of values in step 1, found more in line " +
                        std::to_string(kept + 3) + ": " + std::to_string(200 - kept) +
                        " sequences from there on were not read"));
}

TEST(RolloutStream, OffsetsAreInTheDecompressedStream) {
  const std::string good = Steps(0, 0, "s"), bad = "{\"step\": nonsense}\n";
  const TempFolder dir;
  const RolloutRead read = ReadRollouts({dir.Write("r.jsonl.gz", Gzip(good + bad + good))});
  EXPECT_THAT(read.problems(),
              HasSubstr(": byte " + std::to_string(good.size() + 9) + ": expected"));
  EXPECT_EQ(read.sequences().size(), 4u);
}

TEST(RolloutStream, CompressedAndCutAnywhere) {
  const std::string lines = Steps(0, 5, "s");
  const TempFolder dir;
  const Reader* native = FindReader("rollout-jsonl");
  for (const std::string& bytes : {Gzip(lines), Zstd(lines)}) {
    for (size_t size = 4; size < bytes.size(); size += 3) {
      InputReport report;
      report.path = dir.Write("r", bytes.substr(0, size));
      v1::Batch batch;
      for (const auto& source : native->Open({&report})) {
        while (source->Next(&batch)) {
        }
      }
      EXPECT_FALSE(report.failed()) << size << " " << report.Line(report.problems[0]);
      EXPECT_EQ(report.problems.size(), 1u) << size;
    }
  }
}

TEST(RolloutStream, CompressedAndDamagedIsAnError) {
  const std::string lines = Steps(0, 40, "s");
  const TempFolder dir;
  for (const std::string& bytes : {Gzip(lines), Zstd(lines)}) {
    std::string damaged = bytes;
    for (size_t i = bytes.size() / 2; i < bytes.size() / 2 + 8; ++i) damaged[i] ^= 0x55;
    const RolloutRead read = ReadRollouts({dir.Write("r", damaged)});
    EXPECT_TRUE(read.inputs[0].failed());
  }
  std::string tail_of_gzip = Gzip(lines);
  tail_of_gzip[tail_of_gzip.size() - 6] ^= 1;  // its checksum
  const RolloutRead checked = ReadRollouts({dir.Write("r", tail_of_gzip)});
  EXPECT_THAT(checked.problems(), HasSubstr(": byte " + std::to_string(lines.size()) +
                                            ": expected gzip data, found: incorrect data check"));
  const RolloutRead tail = ReadRollouts({dir.Write("r", Gzip(lines) + "tail")});
  EXPECT_TRUE(tail.inputs[0].failed());
  EXPECT_EQ(tail.sequences().size(), 82u);
}

TEST(RolloutStream, SeveralFilesAreMergedByStep) {
  const TempFolder dir;
  // Two workers side by side, and a third file that continues where they stop.
  dir.Write("run/worker0.jsonl", Steps(0, 20, "a"));
  dir.Write("run/worker1.jsonl.zst", Zstd(Steps(3, 22, "b")));
  dir.Write("run/part2.jsonl", Steps(21, 40, "c"));
  const RolloutRead read = ReadRollouts({dir.path()});
  EXPECT_EQ(read.problems(), "");
  EXPECT_EQ(read.inputs.size(), 3u);
  const std::vector<int64_t> steps = read.steps();
  EXPECT_EQ(steps.size(), 2u * (21 + 20 + 20));
  ExpectOrderly(read);
}

TEST(RolloutStream, HalvesInTwoFilesCloseTheirSteps) {
  std::vector<Json> rollout, train;
  for (int64_t step = 0; step < 30; ++step) {
    Json record = Rollout(step, "s" + std::to_string(step));
    rollout.push_back(record);
    rollout.back().erase("train_logprobs");
    train.push_back(record);
    train.back().erase("rollout_logprobs");
  }
  const TempFolder dir;
  dir.Write("rollout.jsonl", Lines(rollout));
  dir.Write("train.jsonl", Lines(train));
  const RolloutRead read = ReadRollouts({dir.path()});
  EXPECT_EQ(read.problems(), "");
  EXPECT_EQ(read.sequences().size(), 60u);
  ExpectOrderly(read);
  EXPECT_EQ(read.batches.back().progress_size(), 2);
}

TEST(RolloutStream, RunsAreKeptApart) {
  std::vector<Json> records = {Rollout(0, "a"), Rollout(0, "b")};
  records[0]["run"] = "one";
  records[1]["run"] = "two";
  const TempFolder dir;
  dir.Write("1", Lines({records[0]}));
  dir.Write("2", Lines({records[1]}));
  const RolloutRead read = ReadRollouts({dir.path()});
  EXPECT_EQ(read.batches.size(), 2u);
  EXPECT_EQ(read.batches[0].sources(0).run(), "one");
  EXPECT_EQ(read.batches[1].sources(0).run(), "two");
  const RolloutRead mixed = ReadRollouts({dir.Write("3", Lines(records))});
  EXPECT_THAT(mixed.problems(), HasSubstr("expected run \"one\", as in earlier records in line 2"));
}

TEST(RolloutStream, StepsMayGoBackALittle) {
  std::vector<int64_t> order(60);
  std::mt19937 random(1);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  for (size_t i = 0; i + 5 < order.size(); i += 5)
    std::shuffle(order.begin() + static_cast<long>(i), order.begin() + static_cast<long>(i) + 5,
                 random);
  std::vector<Json> records;
  for (const int64_t step : order) records.push_back(Rollout(step, "s" + std::to_string(step)));
  const TempFolder dir;
  const RolloutRead read = ReadRollouts({dir.Write("r", Lines(records))});
  EXPECT_EQ(read.problems(), "");
  EXPECT_EQ(read.sequences().size(), 60u);
  ExpectOrderly(read);
}

TEST(RolloutStream, StepsThatGoBackFarAreRefused) {
  const TempFolder dir;
  const RolloutRead read = ReadRollouts({dir.Write("r", Steps(0, 30, "a") + Steps(3, 3, "late"))});
  EXPECT_THAT(read.problems(), HasSubstr("expected a step of at least 23 (steps may go back by 8) "
                                         "in line 63, found 3"));
  EXPECT_EQ(read.inputs[0].records, 62u);
  EXPECT_EQ(read.sequences().size(), 62u);
  ExpectOrderly(read);
}

// Data that wait for the end of their step are also bounded in bytes.
TEST(RolloutStream, LongSequencesCloseTheirStepsEarlier) {
  Json body = Rollout(0, "", 40000);
  body.erase("step");
  body.erase("sequence_id");
  const std::string rest = ", " + body.dump().substr(1) + "\n";
  std::string lines;
  for (int i = 0; i < 90; ++i) {
    lines += "{\"step\": " + std::to_string(i / 30) + ", \"sequence_id\": " + std::to_string(i);
    lines += rest;
  }
  const TempFolder dir;
  const RolloutRead read = ReadRollouts({dir.Write("r", lines)});
  EXPECT_EQ(read.problems(), "");
  ExpectOrderly(read);
  EXPECT_EQ(read.batches.front().progress_size(), 0);
  size_t with_progress = 0;
  for (const v1::Batch& batch : read.batches) {
    with_progress += batch.progress_size() > 0;
    EXPECT_LT(batch.ByteSizeLong(), 8u << 20);
  }
  EXPECT_GE(with_progress, 2u);
}

TEST(RolloutStream, CallsRunOnWithinAStep) {
  const std::string many = Steps(4, 4, "s", 3000);
  const TempFolder dir;
  const Json longer = Rollout(4, "long", 60000);
  std::vector<Json> records;
  for (int i = 0; i < 8; ++i) {
    records.push_back(longer);
    records.back()["sequence_id"] = i;
  }
  const RolloutRead read = ReadRollouts({dir.Write("r", many + Lines(records))});
  uint32_t next = 0;
  for (const v1::Batch& batch : read.batches) {
    for (const v1::Evidence& item : batch.evidence()) EXPECT_EQ(item.call(), next++);
  }
  EXPECT_GE(next, 2u);
  EXPECT_EQ(read.sequences().back().id(), "7");
}

TEST(RolloutStream, EmptyAndBrokenFiles) {
  const TempFolder dir;
  const RolloutRead read = ReadRollouts({dir.Write("good", Steps(0, 1, "s")),
                                         dir.Write("zeros", std::string(1000, '\0')),
                                         dir.Write("brace", "{"), dir.File("absent")});
  EXPECT_EQ(read.sequences().size(), 4u);
  EXPECT_EQ(read.inputs[0].format, "rollout-jsonl");
  EXPECT_TRUE(read.inputs[1].failed() && read.inputs[2].failed() && read.inputs[3].failed());
}

TEST(RolloutStream, NumbersOfSequencesAreStable) {
  EXPECT_EQ(SequenceNumber("17"), 17);
  EXPECT_EQ(SequenceNumber("0"), 0);
  EXPECT_NE(SequenceNumber("-1"), -1);
  EXPECT_EQ(SequenceNumber("sequence-a"), SequenceNumber("sequence-a"));
  EXPECT_NE(SequenceNumber("sequence-a"), SequenceNumber("sequence-b"));
  EXPECT_LT(SequenceNumber("99999999999999999999"), int64_t{1} << 53);
}

}  // namespace
}  // namespace plumbline::audit
