// The same few thousand mutations of traces and of flight recorders' dumps in every run.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/audit/kineto/trace_text.h"
#include "tests/fuzz/audit_bytes.h"
#include "tests/fuzz/mutate.h"
#include "tests/rules/support/simulated_job.h"

namespace plumbline::audit {
namespace {

void Audit(const std::string& bytes, const char* format) {
  AuditBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), format);
}

std::string Mutate(const std::string& bytes, std::mt19937& random) {
  using namespace std::string_view_literals;
  return MutateWith(bytes, "\0\xFF\x80\"{}[],:-9e.\\ "sv, random);
}

TEST(TraceMutation, Traces) {
  std::mt19937 random(1);
  rules::testing::JobSpec spec;
  spec.ranks = 1;
  spec.steps = 3;
  spec.kernels = 3;
  spec.stall = "loader";
  const auto columns = rules::testing::SimulatedJob(spec);
  const std::string texts[] = {testing::TraceText(columns[0], {.rank = 0, .world = 1}),
                               testing::TraceText(columns[0], {.bare = true, .spaced = false})};
  const FuzzRounds rounds(1500);
  for (int i = 0; rounds.Due(i); ++i) {
    const std::string& text = texts[i % 2];
    Audit(Mutate(text, random), "kineto");
    if (i % 10 == 0) Audit(Mutate(testing::Gzip(text), random), "kineto");
  }
}

TEST(TraceMutation, FlightDumps) {
  std::mt19937 random(2);
  std::string json =
      R"({"version": "2.5", "pg_config": {"0": {"name": "0", "desc": "d", "ranks": "[0, 1]"}},
"pg_status": {"0": {"last_enqueued_collective": 3, "last_completed_collective": 2}}, "entries": [)";
  for (int i = 1; i < 4; ++i) {
    json += i > 1 ? ", " : "";
    json +=
        R"({"pg_id": 0, "process_group": ["0", "d"], "collective_seq_id": )" + std::to_string(i) +
        R"(, "profiling_name": "nccl:all_reduce", "input_sizes": [[3, 4]], "input_dtypes": ["Float"],
"output_sizes": [[3, 4]], "state": "started", "is_p2p": false, "frames": [{"name": "f", "filename": "a.py", "line": 3}]})";
  }
  json += "]}";
  // Python's pickle of {"entries": [{"profiling_name": "nccl:send 0->1", "state": "started",
  // "is_p2p": True}]}.
  constexpr char kPickle[] =
      "\x80\x02}X\x07\0\0\0entries](}(X\x0e\0\0\0profiling_nameX\x0e\0\0\0nccl:send "
      "0->1X\x05\0\0\0state"
      "X\x07\0\0\0startedX\x06\0\0\0is_p2p\x88uees.";
  const std::string pickle(kPickle, sizeof kPickle - 1);  // it has bytes of 0
  const FuzzRounds rounds(2000);
  for (int i = 0; rounds.Due(i); ++i) {
    Audit(Mutate(json, random), "flight-recorder");
    Audit(Mutate(pickle, random), "flight-recorder");
  }
}

}  // namespace
}  // namespace plumbline::audit
