// Traces as files: the data read equal the simulated data in every format; from a damaged file, the
// part before the damage is kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "audit/readers/kineto/reader.h"
#include "audit/readers/kineto/trace_file.h"
#include "audit/render/html_report.h"
#include "audit/render/json_report.h"
#include "audit/render/sarif_report.h"
#include "audit/render/text_report.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/kineto/trace_text.h"
#include "tests/audit/plumb_process.h"
#include "tests/rules/support/simulated_job.h"

namespace plumbline::audit {
namespace {

using rules::testing::JobSpec;
using rules::testing::SimulatedJob;
using test::TempFolder;
using testing::Audit;
using testing::Gzip;
using ::testing::HasSubstr;
using testing::Problems;
using testing::RunPlumb;
using testing::TraceStyle;
using testing::TraceText;
using testing::VerdictOf;

JobSpec OneRank(const char* stall) {
  JobSpec spec;
  spec.ranks = 1;
  spec.stall = stall;
  return spec;
}

timeline::Columns Trace(const JobSpec& spec, int rank = 0) {
  return SimulatedJob(spec)[static_cast<size_t>(rank)];
}

// Read from a file, and reduced.
v1::Timeline ReadBack(const std::string& bytes, InputReport* report) {
  const TempFolder dir;
  report->path = dir.Write("t.json", bytes);
  TraceFile file(ByteStream::Open(*InputFile::Open(report->path)), report);
  while (file.ReadOn()) {
  }
  timeline::Columns columns = file.keeper().TakeColumns();
  return timeline::Reduce(&columns);
}

std::string Bytes(v1::Timeline timeline) {
  timeline.clear_host_events();  // the text has more of them
  return timeline.DebugString();
}

TEST(Kineto, WhatIsReadEqualsWhatWasTraced) {
  for (const char* stall : {"", "loader", "gc", "checkpoint", "compile", "sync", "silent"}) {
    timeline::Columns columns = Trace(OneRank(stall));
    const std::vector<TraceStyle> styles = {
        {}, {.bare = true}, {.spaced = false}, {.noise = false}};
    std::vector<std::string> texts;
    for (const TraceStyle& style : styles) texts.push_back(TraceText(columns, style));
    texts.push_back(Gzip(texts[0]));
    const std::string expected = Bytes(timeline::Reduce(&columns));
    for (const std::string& text : texts) {
      InputReport report;
      EXPECT_EQ(Bytes(ReadBack(text, &report)), expected) << stall;
      EXPECT_TRUE(report.problems.empty()) << report.Line(report.problems[0]);
      EXPECT_GT(report.records, 1000u);
    }
  }
}

TEST(Kineto, NanosecondsAreKept) {
  int64_t ns = 0;
  EXPECT_TRUE(NanosecondsOf("1712345678901234.567", &ns));
  EXPECT_EQ(ns, 1712345678901234567);
  EXPECT_TRUE(NanosecondsOf("-3.5", &ns));
  EXPECT_EQ(ns, -3500);
  EXPECT_TRUE(NanosecondsOf("1.2345678", &ns));
  EXPECT_EQ(ns, 1234);
  EXPECT_TRUE(NanosecondsOf("1.5e3", &ns));
  EXPECT_EQ(ns, 1500000);
  for (const char* text : {"", "-", "NaN", "inf", "1e300", "1x", "99999999999999999999", "."})
    EXPECT_FALSE(NanosecondsOf(text, &ns)) << text;
}

// Every cut in the middle: no crash, a problem, and never more events than in the whole file.
TEST(Kineto, ATraceThatBreaksOffKeepsWhatCameBefore) {
  JobSpec spec = OneRank("loader");
  spec.steps = 3;
  spec.kernels = 4;
  const std::string text = TraceText(Trace(spec), {});
  InputReport whole;
  ReadBack(text, &whole);
  uint64_t before = 0;
  for (size_t size = 1; size + 1 < text.size(); size += 37) {
    InputReport report;
    ReadBack(text.substr(0, size), &report);
    EXPECT_TRUE(report.failed()) << size;
    EXPECT_GE(report.records, before);
    EXPECT_LE(report.records, whole.records);
    before = report.records;
  }
  EXPECT_EQ(before, whole.records);
}

TEST(Kineto, ATruncatedFileIsJudgedWithExitTwo) {
  const TempFolder dir;
  JobSpec spec = OneRank("loader");
  spec.steps = 32;
  // Events in time order, as a killed profiler leaves them.
  const std::string text = TraceText(Trace(spec), {});
  for (const bool packed : {false, true}) {
    std::string bytes = packed ? Gzip(text) : text;
    bytes.resize(bytes.size() - bytes.size() / 20);
    const std::string path = dir.Write(packed ? "t.json.gz" : "t.json", bytes);
    const auto ended = RunPlumb({"audit", path});
    EXPECT_EQ(ended.status, 2);
    EXPECT_THAT(ended.output, HasSubstr("performance/idle-comb"));
    EXPECT_THAT(ended.output, HasSubstr("found the end of"));
  }
}

TEST(Kineto, DamageIsNamedWithItsByte) {
  const struct {
    const char* text;
    const char* expected;
  } cases[] = {
      {R"({"traceEvents": [{"ph": "X", "ts": 1, "dur": 2} {"ph": "X"}]})",
       "byte 48: expected ',' or ']'"},
      {R"({"traceEvents": [{"ph": "X", "ts": 1, "dur" 2}]})", "byte 44: expected ':'"},
      {R"({"traceEvents": [7]})", "byte 17: expected an event, '{'"},
      {R"({"traceEvents": {}})", "byte 16: expected a list of events, '['"},
      {R"({"traceEvents": []} x)", "byte 20: expected the end of the file"},
      {R"({"schemaVersion": 1})", "expected a list of events, \"traceEvents\", found none"},
      {R"({"traceEvents": [{"ph": "X", "name": "a", "dur": 1}]})",
       "expected a start and a duration in each complete event, found 1 without"},
      {R"({"traceEvents": [{"ph": "X", "ts": NaN, "dur": -1}]})", "found 1 without"},
      {R"({"traceEvents": [{"args": {"a": [}]}}]})", "byte 33: expected ']'"},
  };
  for (const auto& c : cases) {
    InputReport report;
    ReadBack(c.text, &report);
    ASSERT_FALSE(report.problems.empty()) << c.text;
    EXPECT_THAT(report.Line(report.problems[0]), HasSubstr(c.expected)) << c.text;
  }
}

// For every position of the break: more than one window is read, and the end is the end of the
// file.
TEST(Kineto, TheByteOfABreakIsThatOfTheFile) {
  const std::string event =
      R"({"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":100,"dur":50,"args":{"correlation":7}},)";
  std::string whole = R"({"traceEvents":[)";
  while (whole.size() < (5u << 20)) whole += event;
  for (const size_t size : {500'000u, 1'048'576u, 1'500'000u, 2'097'152u, 3'333'333u, 5'000'000u}) {
    InputReport report;
    ReadBack(whole.substr(0, size), &report);
    ASSERT_EQ(report.problems.size(), 1u) << size;
    EXPECT_EQ(report.problems[0].offset, size);
    EXPECT_THAT(report.problems[0].text, HasSubstr("found the end of the file"));
    EXPECT_GE(report.records, size / event.size() - 1);
  }
}

TEST(Kineto, NestingIsBounded) {
  std::string deep = R"({"traceEvents": [{"ph": "X", "args": )";
  deep.append(1u << 20, '[');
  InputReport report;
  ReadBack(deep, &report);
  EXPECT_THAT(report.Line(report.problems[0]), HasSubstr("nested at most 64 deep"));
}

TEST(Kineto, HugeNumbersAndNamesAreBounded) {
  std::string text = R"({"traceEvents": [)";
  for (int i = 0; i < 70'000; ++i) {
    text += R"({"ph": "X", "cat": "kernel", "name": "k)" + std::to_string(i) + R"(", "ts": )" +
            std::to_string(10 * i) +
            R"(, "dur": 5, "args": {"correlation": 99999999999999999999, "stream": "s)" +
            std::to_string(i) + "\"}},\n";
  }
  text += R"({"ph": "X", "cat": "kernel", "name": "\ud800 \u0041 )" + std::string("\xff\xfe") +
          R"(", "ts": 9e300, "dur": 1}]})";
  InputReport report;
  const v1::Timeline timeline = ReadBack(text, &report);
  EXPECT_EQ(timeline.gpu_events(), 70'000u);
  EXPECT_EQ(report.notes.size(), 1u);
}

TEST(Kineto, RecognisedByContentAlone) {
  const KinetoReader reader;
  const auto is = [&](const std::string& text) {
    const TempFolder dir;
    const std::string path = dir.Write("x.dat", text);
    return reader.Recognise(path, text.substr(0, Reader::kHeadBytes));
  };
  const std::string text = TraceText(Trace(OneRank("")), {.rank = 0, .world = 1});
  EXPECT_TRUE(is(text));
  EXPECT_TRUE(is(Gzip(text)));
  EXPECT_TRUE(is(TraceText(Trace(OneRank("")), {.bare = true})));
  EXPECT_TRUE(is(R"({"schemaVersion": 1, "deviceProperties": [)" + std::string(200'000, ' ') +
                 R"(], "traceEvents": []})"));
  for (const char* other : {R"({"step": 1, "loss": 2.5})", R"([{"step": 1}])", "[1, 2]", "{}", "",
                            R"({"entries": [], "pg_config": {}})", "{\"schema", "step,loss\n1,2\n"})
    EXPECT_FALSE(is(other)) << other;
}

TEST(Kineto, RanksAreJoinedAndTheSlowOneNamed) {
  const TempFolder dir;
  JobSpec spec;
  spec.slow_rank = 5;
  const auto columns = SimulatedJob(spec);
  std::vector<std::string> paths;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    TraceStyle style{.rank = rank, .world = spec.ranks};
    style.late_rank = rank % 2 == 1;
    // One rank is identified by its file name.
    if (rank == 3) style.rank = -1;
    paths.push_back(dir.Write("t_rank" + std::to_string(rank) + ".json",
                              TraceText(columns[static_cast<size_t>(rank)], style)));
  }
  std::swap(paths[0], paths[6]);
  const AuditResult result = Audit(paths);
  EXPECT_EQ(Problems(result), "");
  const v1::Verdict* straggler = VerdictOf(result, "performance/straggler");
  ASSERT_NE(straggler, nullptr);
  EXPECT_EQ(straggler->kind(), v1::Verdict::KIND_FINDING);
  ASSERT_EQ(straggler->site().ranks_size(), 1);
  EXPECT_EQ(straggler->site().ranks(0), 5u);
  EXPECT_EQ(straggler->site().step_first(), 10);
  EXPECT_EQ(straggler->site().step_last(), 25);
}

TEST(Kineto, NamesThatCountAreRanks) {
  const TempFolder dir;
  JobSpec spec;
  spec.ranks = 3;
  const auto columns = SimulatedJob(spec);
  std::vector<std::string> paths;
  for (const int rank : {2, 0, 1})
    paths.push_back(dir.Write("trace_" + std::to_string(rank) + ".pt.trace.json",
                              TraceText(columns[static_cast<size_t>(rank)], {})));
  EXPECT_TRUE(Audit(paths).inputs[0].notes.empty());
  // A single number may be a step.
  const AuditResult one = Audit({paths[0]});
  EXPECT_EQ(VerdictOf(one, "performance/idle-comb")->site().ranks(0), 0u);
  const AuditResult two = Audit({paths[0], paths[2]});
  EXPECT_THAT(two.inputs[0].notes, ::testing::Contains(HasSubstr("treated as rank 0")));
}

// A file with a byte order mark, one in which an event has no time, and processes that each call
// themselves rank 0 of 1: all seen in real traces.
TEST(Kineto, WhatEditorsAndLaunchersLeave) {
  const timeline::Columns columns = Trace(OneRank("loader"));
  const std::string text = TraceText(columns, {});
  InputReport plain, marked, timeless;
  const v1::Timeline expected = ReadBack(text, &plain);
  EXPECT_EQ(Bytes(ReadBack("\xEF\xBB\xBF" + text, &marked)), Bytes(expected));
  std::string with_zero = text;
  const size_t at = with_zero.find("\"traceEvents\"");
  with_zero.insert(with_zero.find('[', at) + 1,
                   R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":0,"dur":5},)");
  EXPECT_EQ(ReadBack(with_zero, &timeless).span_ns(), expected.span_ns());
  const TempFolder dir;
  JobSpec spec;
  spec.slow_rank = 2;
  spec.ranks = 4;
  const auto all = SimulatedJob(spec);
  std::vector<std::string> paths;
  for (int rank = 0; rank < spec.ranks; ++rank)
    paths.push_back(dir.Write(
        "job_rank" + std::to_string(rank) + ".json",
        "\xEF\xBB\xBF" + TraceText(all[static_cast<size_t>(rank)], {.rank = 0, .world = 1})));
  const AuditResult result = Audit(paths);
  const v1::Verdict* straggler = VerdictOf(result, "performance/straggler");
  ASSERT_NE(straggler, nullptr);
  ASSERT_EQ(straggler->site().ranks_size(), 1);
  EXPECT_EQ(straggler->site().ranks(0), 2u);
}

// On the last line before the counts, in JSON, and on the finding.
TEST(Kineto, TheBottleneckIsReported) {
  const TempFolder dir;
  JobSpec spec = OneRank("loader");
  const AuditResult waits = Audit({dir.Write("a.json", TraceText(Trace(spec), {}))});
  EXPECT_THAT(RenderText(waits, {}), HasSubstr("\nBottleneck: the host (the GPU waits for it"));
  const v1::Verdict* comb = VerdictOf(waits, "performance/idle-comb");
  for (const char* key : {"bottleneck", "toll"})  // former name
    EXPECT_EQ(comb->details().fields().at(key).string_value(), "host");
  for (const char* key : {"next_bottleneck", "next_toll"})
    EXPECT_EQ(comb->details().fields().at(key).string_value(), "gpu-traffic");
  spec.stall = "";
  spec.transfer_ms = 120;
  const AuditResult pays = Audit({dir.Write("b.json", TraceText(Trace(spec), {}))});
  EXPECT_THAT(RenderText(pays, {}), HasSubstr("\nBottleneck: the cable, "));
  const auto json = nlohmann::json::parse(RenderJson(pays));
  EXPECT_EQ(json["bottleneck"]["paid"], "cable");
  EXPECT_EQ(json["bottleneck"]["next"], "gpu-traffic");
  EXPECT_GT(json["bottleneck"]["share"], 0.3);
  const std::string line = json["bottleneck"]["line"];
  EXPECT_THAT(RenderHtml(pays), HasSubstr("<p>" + line + "</p>"));
  EXPECT_THAT(RenderHtml(pays), HasSubstr("\"bottleneck\":\"" + line + "\""));
  const auto sarif = nlohmann::json::parse(RenderSarif(pays, 0, "/"))["runs"][0]["properties"];
  EXPECT_EQ(sarif["bottleneck"]["line"], line);
  EXPECT_EQ(sarif["bottleneck"]["paid"], "cable");
  EXPECT_EQ(sarif["bottleneck"]["next"], "gpu-traffic");
}

// A stage is a rank's place in the group that sends and receives.
TEST(Kineto, TheStageIsThePlaceInTheSendAndReceiveGroup) {
  const auto text = [](int rank) {
    return R"({"distributedInfo": {"rank": )" + std::to_string(rank) +
           R"(, "world_size": 8}, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv",
"ts": 1, "dur": 2, "args": {"Collective name": "send", "Process Group Name": "3", "Process Group Ranks": "[1, 3, 5, 7]"}}]})";
  };
  InputReport report;
  v1::Timeline timeline = ReadBack(text(5), &report);
  EXPECT_TRUE(timeline.stage_known());
  EXPECT_EQ(timeline.stage(), 2u);
  EXPECT_EQ(timeline.communication_kernels(), 1u);
  timeline = ReadBack(text(0), &report);
  EXPECT_FALSE(timeline.stage_known());
}

TEST(Kineto, MetadataStatesWhatCommunicates) {
  InputReport report;
  const v1::Timeline timeline = ReadBack(
      R"([{"ph": "X", "cat": "kernel", "name": "mystery", "ts": 1, "dur": 2, "args": {"Collective name": "allreduce", "stream": 9}},
{"ph": "X", "cat": "kernel", "name": "unknown", "ts": 4, "dur": 1, "args": {"stream": 9}},
{"ph": "X", "cat": "kernel", "name": "void at::native::x", "ts": 6, "dur": 4, "args": {"stream": 7}}])",
      &report);
  EXPECT_EQ(timeline.communication_ns(), 2000u);
  EXPECT_EQ(timeline.unclassified_ns(), 1000u);
  EXPECT_EQ(timeline.kernel_ns(), 7000u);
}

// With the clock of the original: each gap ends where the operation after it begins.
TEST(Kineto, WhatWasSeenIsWrittenAsATrace) {
  const TempFolder dir;
  const timeline::Columns columns = Trace(OneRank("loader"));
  const std::string path = dir.Write("t.json", TraceText(columns, {.rank = 0, .world = 1}));
  const std::string written = dir.File("seen.json");
  const auto ended = RunPlumb({"audit", path, "--timeline", written, "--quiet"});
  EXPECT_EQ(ended.status, 0) << ended.errors;
  const auto trace = nlohmann::json::parse(test::ReadFile(written));
  std::set<std::string> starts;
  for (const timeline::GpuWork& work : columns.gpu) starts.insert(std::to_string(work.start));
  int loading = 0, steps = 0, findings = 0, waits = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    steps += event["tid"] == 1 ? 1 : 0;
    findings += event["tid"] == 3 ? 1 : 0;
    loading += event["tid"] == 2 && event["name"] == "data-loading" ? 1 : 0;
    waits += event["tid"] == 4 ? 1 : 0;
  }
  EXPECT_EQ(loading, 15);
  EXPECT_GE(waits, 1);
  EXPECT_EQ(steps, 16);
  EXPECT_EQ(findings, 2);  // the comb, and the stall
  // The text has nanoseconds, although a double cannot hold them.
  const std::string text = test::ReadFile(written);
  const size_t at = text.find("\"ts\":", text.find("data-loading")) + 5;
  int64_t start = 0, duration = 0;
  ASSERT_TRUE(NanosecondsOf(text.substr(at, text.find(',', at) - at), &start));
  const size_t of_duration = text.find("\"dur\":", at) + 6;
  ASSERT_TRUE(NanosecondsOf(text.substr(of_duration, text.find('}', of_duration) - of_duration),
                            &duration));
  EXPECT_TRUE(starts.contains(std::to_string(start + duration)));
  EXPECT_TRUE(TraceFile::Recognise(text));
  EXPECT_EQ(RunPlumb({"audit", path, "--timeline", path}).status, 2);
}

// A profiler that corrects a clock writes a few events that end before they begin: they are counted
// and are not damage. If there are many, the times cannot be used.
TEST(Kineto, AFewNegativeDurations) {
  const auto trace = [](int negative) {
    std::string text = R"({"schemaVersion": 1, "traceEvents": [)";
    for (int i = 0; i < 200; ++i) {
      text += std::string(i == 0 ? "" : ", ") +
              R"({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": )" +
              std::to_string(10 * i) + R"(, "dur": )" + (i < negative ? "-1" : "5") + "}";
    }
    return text + "]}";
  };
  for (const int negative : {0, 8, 100}) {
    InputReport report;
    ReadBack(trace(negative), &report);
    EXPECT_EQ(report.failed(), negative == 100);
    ASSERT_EQ(report.problems.size(), negative > 0 ? 1u : 0u);
    if (negative == 0) continue;
    EXPECT_THAT(report.problems[0].text,
                HasSubstr(std::to_string(negative) + " below 0 of 200: these events"));
  }
}

// The format of a PyTorch that was built without Kineto.
TEST(Kineto, TheOldFormHasAProcessForTheGpu) {
  InputReport report;
  const v1::Timeline timeline = ReadBack(
      R"([{"name": "aten::mul", "ph": "X", "ts": 1, "dur": 2, "tid": 1, "pid": "CPU functions", "args": {}},
{"name": "Memcpy HtoD", "ph": "X", "ts": 2, "dur": 1, "tid": 0, "pid": "CUDA functions", "args": {}},
{"name": "gemm", "ph": "X", "ts": 5, "dur": 4, "tid": 0, "pid": "CUDA functions", "args": {}}])",
      &report);
  EXPECT_EQ(timeline.gpu_events(), 2u);
  EXPECT_EQ(timeline.kernels(), 1u);
  EXPECT_EQ(timeline.busy_ns(), 5000u);
  EXPECT_EQ(timeline.span_ns(), 7000u);
}

}  // namespace
}  // namespace plumbline::audit
