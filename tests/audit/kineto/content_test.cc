// The content of a trace beyond one training process on one GPU: several GPUs, a server,
// collectives that state their sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/audit/audit_dumps.h"
#include "tests/audit/kineto/trace_text.h"
#include "tests/rules/support/simulated_job.h"

namespace plumbline::audit {
namespace {

using rules::testing::JobSpec;
using rules::testing::SimulatedJob;
using test::TempFolder;
using testing::Audit;
using ::testing::HasSubstr;
using testing::TraceText;
using testing::VerdictOf;

// Two GPUs of one process: each is reported separately, and they are not combined.
TEST(KinetoContent, GpusOfOneProcessAreKeptApart) {
  JobSpec spec;
  spec.ranks = 1;
  spec.stall = "loader";
  timeline::Columns columns = SimulatedJob(spec)[0];
  const v1::Timeline alone = [&] {
    timeline::Columns copy = columns;
    return timeline::Reduce(&copy);
  }();
  // The second computes while the first waits, and idles in between: the union of both is busy.
  const std::vector<timeline::GpuWork> first = columns.gpu;
  const auto correlations = static_cast<uint32_t>(2 * columns.launches.size());
  for (size_t i = 1; i < first.size(); ++i) {
    timeline::GpuWork work = first[i];
    work.start = first[i - 1].end;
    work.end = first[i].start;
    if (work.end - work.start < 1'000'000) continue;
    work.device = 1;
    work.communicates = false;
    work.correlation = correlations + static_cast<uint32_t>(i);
    columns.gpu.push_back(work);
  }
  const TempFolder dir;
  const AuditResult result = Audit({dir.Write("t.json", TraceText(columns, {}))});
  std::map<std::string, const v1::Verdict*> combs;
  for (const v1::Verdict* verdict : result.report.verdicts()) {
    if (verdict->rule() == "performance/idle-comb") combs[verdict->site().layer()] = verdict;
  }
  ASSERT_EQ(combs.size(), 2u);
  const auto idle = [&](const char* layer) {
    return combs.at(layer)->details().fields().at("idle_share").number_value();
  };
  EXPECT_NEAR(idle(""),
              1 - static_cast<double>(alone.busy_ns()) / static_cast<double>(alone.span_ns()),
              1e-12);
  EXPECT_GT(idle("GPU 1"), 0.5);
  EXPECT_EQ(combs.at("")->kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(combs.at("GPU 1")->site().ranks(0), 0u);
  // A GPU that does almost nothing is reported and not judged.
  columns.gpu.erase(columns.gpu.begin() + static_cast<ptrdiff_t>(first.size()) + 1,
                    columns.gpu.end());
  columns.gpu.back().end = columns.gpu.back().start + 1000;
  const AuditResult stray = Audit({dir.Write("s.json", TraceText(columns, {}))});
  EXPECT_THAT(stray.inputs[0].notes, ::testing::Contains(HasSubstr("GPU 1 is busy less than 1 %")));
}

// A server of an inference engine: requests come evenly. It waits for each request in a span with a
// loader's name, and for the copy of each token.
TEST(KinetoContent, AServerThatWaitsForRequestsIsHealthy) {
  const auto text = [](const char* more) {
    std::string events;
    for (int request = 0; request < 40; ++request) {
      const int at = 1'000'000 + 50'000 * request;  // us
      const auto add = [&](const char* category, const std::string& name, int from, int length) {
        events += std::string(events.empty() ? "" : ",\n") + R"({"ph":"X","cat":")" + category +
                  R"(","name":")" + name + R"(","pid":0,"tid":1,"ts":)" + std::to_string(from) +
                  ",\"dur\":" + std::to_string(length) +
                  ",\"args\":{\"correlation\":" + std::to_string(request + 1) +
                  ",\"device\":0,\"stream\":7}}";
      };
      add("python_function", "scheduler.py(612): get_next_batch_to_run", at - 30'000, 29'900);
      add("user_annotation", "data_wait", at - 30'000, 29'900);
      add("cuda_runtime", "cudaEventSynchronize", at - 31'000, 1'050);
      add("cuda_runtime", "cudaLaunchKernel", at - 50, 10);
      add("kernel", "flash_fwd_kernel", at, 19'000);
    }
    return "[" + events + more + "]";
  };
  const TempFolder dir;
  const AuditResult served = Audit({dir.Write("s.json", text(""))});
  EXPECT_TRUE(served.report.findings().empty()) << served.report.findings()[0]->DebugString();
  EXPECT_THAT(VerdictOf(served, "performance/idle-comb")->reason(), HasSubstr("no-steps: 39 gaps"));
  // The same loop with gradients: there it is a loader.
  const AuditResult trained = Audit({dir.Write(
      "t.json",
      text(
          R"(,{"ph":"X","cat":"cpu_op","name":"autograd::engine::evaluate_function: AddmmBackward0","pid":0,"tid":1,"ts":2000000,"dur":5})"))});
  const v1::Verdict* comb = VerdictOf(trained, "performance/idle-comb");
  EXPECT_EQ(comb->kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(comb->details().fields().at("cause").string_value(), "data-loading");
}

// NCCL kernels as PyTorch's profiler describes them: 128 all-gathers of 64 MiB between two ranks, 2
// ms each.
TEST(KinetoContent, CollectivesAreMeasuredAgainstTheLink) {
  const auto text = [](int rank) {
    std::string events;
    for (int call = 0; call < 128; ++call) {
      const int begin = 1'000'000 + 10'000 * call + (rank == call % 2 ? 0 : 700);  // us; one waits
      const int end = 1'000'000 + 10'000 * call + 2'700;
      events +=
          std::string(events.empty() ? "" : ",\n") +
          R"({"ph":"X","cat":"kernel","name":"ncclDevKernel_AllGather_RING_LL","pid":0,"tid":20,"ts":)" +
          std::to_string(begin) + ",\"dur\":" + std::to_string(end - begin) +
          R"(,"args":{"device":0,"stream":20,"Collective name":"_allgather_base","In msg nelems":16777216,)" +
          R"("Out msg nelems":33554432,"Group size":2,"dtype":"BFloat16","Process Group Name":"1",)" +
          R"("Process Group Ranks":"[0, 1]"}})";
    }
    return R"({"distributedInfo":{"rank":)" + std::to_string(rank) +
           R"(,"world_size":2},"traceEvents":[)" + events + "]}";
  };
  const TempFolder dir;
  const std::vector<std::string> paths = {dir.Write("a.json", text(0)),
                                          dir.Write("b.json", text(1))};
  const AuditResult untold = Audit(paths);
  const v1::Verdict* verdict = VerdictOf(untold, "performance/collective-bandwidth");
  ASSERT_NE(verdict, nullptr);
  // 64 MiB (N-1)/N in 2 ms: measured on the rank that comes last, not on the one that waits.
  EXPECT_NEAR(verdict->details().fields().at("gb_s").number_value(), 16.777216, 1e-6);
  EXPECT_THAT(verdict->reason(), HasSubstr("no-link: "));
  EXPECT_EQ(verdict->site().layer(), "collectives of 2 ranks");
  EXPECT_EQ(verdict->site().op(), "all_gather");
}

}  // namespace
}  // namespace plumbline::audit
