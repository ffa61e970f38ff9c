// A run that records: what the trainer did is in the file, while it is written and after.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include "agent/core/record_sink.h"
#include "base/clock.h"
#include "kernels/routing_evidence.h"
#include "tests/agent/core/support.h"

extern char** environ;

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own
using ::testing::HasSubstr;

std::string FirstRecord(const std::string& dir) { return RecordPath(dir, v1::ROLE_TRAINER, 0, 0); }

TEST(Record, HoldsEveryObservation) {
  TempDir dir;
  TestRun run(RecordOptions(dir.path()));
  RouterCall call(32, 8, 2);
  for (int64_t step = 0; step < 50; ++step) {
    run.run().StepBegin(step);
    for (const char* layer : {"layers.0", "layers.1"}) {
      EXPECT_EQ(run.Observe(layer, step, call), PLUMBLINE_OK);
      EXPECT_EQ(run.Observe(layer, step, call), PLUMBLINE_OK);
    }
    EXPECT_EQ(run.run().Scalar(step, "loss", 0.5 * static_cast<double>(step)), PLUMBLINE_OK);
    run.run().StepEnd(step);
  }
  EXPECT_EQ(run.Close(), PLUMBLINE_OK) << run.error();

  const auto batches = ReadRecord(FirstRecord(dir.path()));
  const Account account = AccountOf(batches);
  EXPECT_EQ(account.items, 50u * 5);
  EXPECT_EQ(account.lost, 0u);
  EXPECT_EQ(account.complete_through, 49);
  EXPECT_TRUE(account.finished);
  EXPECT_EQ(account.declared.at({"layers.0", "routing"}), "routing");
  EXPECT_EQ(account.declared.at({"", "loss"}), "scalar");

  std::set<std::tuple<std::string, int64_t, uint32_t>> calls;
  std::set<uint64_t> streams;
  uint64_t sequence = 0;
  for (const v1::Batch& b : batches) {
    EXPECT_EQ(b.sequence(), ++sequence);
    streams.insert(b.stream_id());
    ASSERT_EQ(b.sources_size(), 1);
    EXPECT_EQ(b.sources(0).run(), "test");
    EXPECT_EQ(b.sources(0).pid(), getpid());
    for (const v1::Evidence& e : b.evidence()) {
      if (e.has_scalar()) {
        EXPECT_EQ(e.scalar().value(), 0.5 * static_cast<double>(e.step()));
        continue;
      }
      EXPECT_TRUE(calls.insert({e.site().layer(), e.step(), e.call()}).second);
      EXPECT_LT(e.call(), 2u);
      EXPECT_EQ(e.routing().summary().tokens(), 32u);
      EXPECT_EQ(e.sample_size(), 32u);
      EXPECT_EQ(e.routing().config().mode(), "train");
    }
  }
  EXPECT_EQ(streams.size(), 1u);
  EXPECT_NE(*streams.begin(), 0u);
}

// The sample is the trainer's rows, bit for bit, taken when the call was made.
TEST(Record, SamplesAreTheRowsAtTheTimeOfTheCall) {
  TempDir dir;
  TestRun run(RecordOptions(dir.path()));
  RouterCall call(16, 4, 1);
  const std::vector<float> before = call.scores();
  run.run().StepBegin(0);
  ASSERT_EQ(run.Observe("l", 0, call), PLUMBLINE_OK);
  for (float& s : call.scores()) s = -1;  // the trainer goes on with its memory
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const auto batches = ReadRecord(FirstRecord(dir.path()));
  const v1::RoutingSample* sample = nullptr;
  for (const auto& b : batches) {
    for (const auto& e : b.evidence()) sample = &e.routing().sample();
  }
  ASSERT_NE(sample, nullptr);
  EXPECT_EQ(sample->scores().data(),
            std::string(reinterpret_cast<const char*>(before.data()), before.size() * 4));
}

TEST(Record, ReadableWhileItIsWritten) {
  TempDir dir;
  TestRun run(RecordOptions(dir.path()));
  for (int64_t step = 0; step < 5; ++step) {
    run.run().StepBegin(step);
    run.run().Scalar(step, "loss", 1);
    run.run().StepEnd(step);
    plumbline_error_t error;
    ASSERT_EQ(run.run().Flush(10000, &error), PLUMBLINE_OK) << error.text;
    const Account account = AccountOf(ReadRecord(FirstRecord(dir.path())));
    EXPECT_EQ(account.items, static_cast<uint64_t>(step + 1));
    EXPECT_EQ(account.complete_through, step);
    EXPECT_FALSE(account.finished);
  }
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
}

TEST(Record, StrangeShapesAndValuesAreCountedNotCrashed) {
  TempDir dir;
  TestRun run(RecordOptions(dir.path()));
  run.run().StepBegin(0);
  RouterCall poison(8, 4, 2);
  poison.scores()[0] = std::numeric_limits<float>::quiet_NaN();
  poison.scores()[9] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(run.Observe("poison", 0, poison), PLUMBLINE_OK);
  RouterCall sentinel(8, 4, 2);
  for (int64_t& i : sentinel.topk()) i = -1;
  EXPECT_EQ(run.Observe("sentinel", 0, sentinel), PLUMBLINE_OK);
  RouterCall empty(0, 4, 2);
  EXPECT_EQ(run.Observe("empty", 0, empty), PLUMBLINE_INVALID_ARGUMENT);
  RouterCall outside(8, 4, 2);
  outside.topk()[3] = 4;  // found when the drain thread measures
  EXPECT_EQ(run.Observe("outside", 0, outside), PLUMBLINE_OK);

  RouterCall wide(8, 4, 2);
  wide.get().top_k = 9;
  EXPECT_EQ(run.Observe("bad", 0, wide), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_THAT(run.error(), HasSubstr("top_k = 9"));
  RouterCall none(8, 4, 2);
  none.get().scores = nullptr;
  EXPECT_EQ(run.Observe("bad", 0, none), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_THAT(run.error(), HasSubstr("scores"));
  RouterCall lanes(8, 4, 2);
  lanes.scores_tensor().dtype.lanes = 4;
  EXPECT_EQ(run.Observe("bad", 0, lanes), PLUMBLINE_INVALID_ARGUMENT);
  RouterCall huge(8, 4, 2);
  int64_t shape[2] = {int64_t{1} << 62, int64_t{1} << 62};
  huge.scores_tensor().shape = shape;
  EXPECT_EQ(run.Observe("bad", 0, huge), PLUMBLINE_INVALID_ARGUMENT);
  RouterCall negative(8, 4, 2);
  int64_t shape2[2] = {-8, 4};
  negative.scores_tensor().shape = shape2;
  EXPECT_EQ(run.Observe("bad", 0, negative), PLUMBLINE_INVALID_ARGUMENT);
  RouterCall mixed(8, 4, 2);
  mixed.scores_tensor().device = {kDLCUDA, 0};
  EXPECT_EQ(run.Observe("bad", 0, mixed), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_THAT(run.error(), HasSubstr("topk_indices: expected on device 0 as the scores"));
  run.run().StepEnd(0);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);

  const Account account = AccountOf(ReadRecord(FirstRecord(dir.path())));
  EXPECT_EQ(account.lost_by_cause.at("invalid"), 8u);
  EXPECT_EQ((account.lost_by_site.at({"bad", "routing"})), 6u);
  EXPECT_EQ((account.lost_by_site.at({"outside", "routing"})), 1u);
  EXPECT_EQ((account.items_by_site.at({"poison", "routing"})), 1u);
  EXPECT_EQ(account.items + account.lost, 10u);
}

TEST(Record, NaNScalarsAreData) {
  TempDir dir;
  TestRun run(RecordOptions(dir.path()));
  run.run().StepBegin(0);
  run.run().Scalar(0, "loss", std::numeric_limits<double>::quiet_NaN());
  run.run().Scalar(0, "grad", std::numeric_limits<double>::infinity());
  run.run().StepEnd(0);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  std::map<std::string, double> values;
  for (const auto& b : ReadRecord(FirstRecord(dir.path()))) {
    for (const auto& e : b.evidence()) values[e.site().op()] = e.scalar().value();
  }
  EXPECT_TRUE(std::isnan(values.at("loss")));
  EXPECT_TRUE(std::isinf(values.at("grad")));
}

// A call larger than the ring is measured on the caller's thread, and says why it has no sample.
TEST(Record, CallsLargerThanTheRingKeepTheirSummary) {
  TempDir dir;
  AgentOptions options = RecordOptions(dir.path());
  options.ring_bytes = 64 << 10;
  TestRun run(options);
  RouterCall call(4096, 16, 2);
  run.run().StepBegin(0);
  ASSERT_EQ(run.Observe("big", 0, call), PLUMBLINE_OK);
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  uint64_t seen = 0;
  for (const auto& b : ReadRecord(FirstRecord(dir.path()))) {
    for (const auto& e : b.evidence()) {
      ++seen;
      EXPECT_EQ(e.routing().summary().tokens(), 4096u);
      EXPECT_EQ(e.sample_size(), 4096u);
      EXPECT_FALSE(e.routing().has_sample());
      EXPECT_THAT(e.routing().no_sample_reason(), HasSubstr("exceeds"));
    }
  }
  EXPECT_EQ(seen, 1u);
}

// More than the ring can hold at once: what is missing is exactly what was refused.
TEST(Record, RingOverflowIsCounted) {
  TempDir dir;
  AgentOptions options = RecordOptions(dir.path());
  options.ring_bytes = 64 << 10;
  TestRun run(options);
  RouterCall call(100, 8, 2);
  uint64_t dropped = 0, kept = 0;
  for (int64_t step = 0; step < 30; ++step) {
    run.run().StepBegin(step);
    for (int i = 0; i < 100; ++i) {
      const plumbline_status_t status = run.Observe("layers.0", step, call);
      ASSERT_GE(status, 0);
      (status == PLUMBLINE_OK ? kept : dropped) += 1;
    }
    run.run().StepEnd(step);
  }
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(ReadRecord(FirstRecord(dir.path())));
  EXPECT_GT(dropped, 0u);
  EXPECT_EQ(account.items, kept);
  EXPECT_EQ(account.lost_by_cause.at("ring-full"), dropped);
  EXPECT_EQ(account.complete_through, 29);
}

TEST(Record, ManyThreadsObserveAtOnce) {
  TempDir dir;
  TestRun run(RecordOptions(dir.path()));
  constexpr int kThreads = 8, kEach = 300;
  Site* shared = run.RoutingSite("shared");
  std::atomic<uint64_t> dropped{0};
  run.run().StepBegin(0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      RouterCall call(16, 4, 1, static_cast<uint32_t>(t));
      plumbline_error_t error;
      for (int i = 0; i < kEach; ++i) {
        dropped += run.run().ObserveRouting(shared, 0, call.get(), &error) != PLUMBLINE_OK;
        dropped += run.run().Scalar(0, ("s" + std::to_string(t % 3)).c_str(), i) != PLUMBLINE_OK;
        uint64_t span = 0;
        dropped += run.run().SpanBegin(0, "forward", "f", &span, &error) != PLUMBLINE_OK;
        EXPECT_EQ(run.run().SpanEnd(span, &error), PLUMBLINE_OK);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const auto batches = ReadRecord(FirstRecord(dir.path()));
  const Account account = AccountOf(batches);
  EXPECT_EQ(account.items + account.lost, static_cast<uint64_t>(kThreads * kEach * 3));
  EXPECT_EQ(account.lost, dropped.load());
  std::set<uint32_t> calls;
  for (const auto& b : batches) {
    for (const auto& e : b.evidence()) {
      if (!e.has_routing()) continue;
      EXPECT_TRUE(calls.insert(e.call()).second) << "call " << e.call();
    }
  }
}

TEST(Record, SpansMeasureTimeAndBelongToTheStepTheyEndIn) {
  TempDir dir;
  TestRun run(RecordOptions(dir.path()));
  plumbline_error_t error;
  uint64_t inside = 0, between = 0, across = 0;
  const uint64_t before = UnixNs();
  run.run().StepBegin(4);
  ASSERT_EQ(run.run().SpanBegin(4, "forward", "forward", &inside, &error), PLUMBLINE_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_EQ(run.run().SpanEnd(inside, &error), PLUMBLINE_OK);
  ASSERT_EQ(run.run().SpanBegin(4, "backward", "across", &across, &error), PLUMBLINE_OK);
  run.run().StepEnd(4);
  ASSERT_EQ(run.run().SpanBegin(4, "checkpoint", "save", &between, &error), PLUMBLINE_OK);
  ASSERT_EQ(run.run().SpanEnd(between, &error), PLUMBLINE_OK);
  run.run().Flush(10000, &error);
  run.run().StepBegin(5);
  ASSERT_EQ(run.run().SpanEnd(across, &error), PLUMBLINE_OK);
  run.run().StepEnd(5);
  EXPECT_EQ(run.run().SpanBegin(5, "lunch", "x", &inside, &error), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_THAT(error.text, HasSubstr("lunch"));
  EXPECT_EQ(run.run().SpanEnd(across, &error), PLUMBLINE_INVALID_ARGUMENT);
  uint64_t last = 0;
  ASSERT_EQ(run.run().SpanBegin(5, "other", "last", &last, &error), PLUMBLINE_OK);
  ASSERT_EQ(run.run().SpanEnd(last, &error), PLUMBLINE_OK);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);

  std::map<std::string, v1::Evidence> spans;
  int64_t complete = -1;
  for (const auto& b : ReadRecord(FirstRecord(dir.path()))) {
    for (const auto& e : b.evidence()) {
      EXPECT_GT(e.step(), complete) << "evidence of a step that was said to be complete";
      spans[e.span().name()] = e;
    }
    for (const auto& p : b.progress()) complete = p.complete_through();
  }
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans.at("forward").step(), 4);
  EXPECT_EQ(spans.at("across").step(), 5);
  EXPECT_EQ(spans.at("save").step(), 5);
  EXPECT_EQ(spans.at("last").step(), 6);
  EXPECT_GE(spans.at("forward").span().duration_ns(), 20'000'000u);
  EXPECT_LT(spans.at("forward").span().duration_ns(), 60'000'000'000u);
  EXPECT_GE(spans.at("forward").span().start_ns(), before);
  EXPECT_LE(spans.at("forward").span().start_ns(), UnixNs());
  EXPECT_EQ(spans.at("save").span().kind(), v1::Span::KIND_CHECKPOINT);
}

// Sampled steps are the same on every rank, and average out within the budget.
TEST(Record, RanksSampleTheSameStepsWithinTheBudget) {
  TempDir dir;
  constexpr int kRanks = 3;
  constexpr int64_t kSteps = 2048;
  std::vector<std::set<int64_t>> sampled(kRanks);
  RouterCall call(64, 8, 2);
  uint64_t sample_bytes = 0;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    AgentOptions options = RecordOptions(dir.path());
    options.rank = rank;
    options.world_size = kRanks;
    TestRun run(options);
    for (int64_t step = 0; step < kSteps; ++step) {
      run.run().StepBegin(step);
      for (const char* layer : {"a", "b", "c", "d"}) {
        ASSERT_TRUE(step == 0 || run.Due(layer, step));
        while (run.Observe(layer, step, call) == PLUMBLINE_DROPPED) {
          ADD_FAILURE() << "ring full";
        }
      }
      run.run().StepEnd(step);
      if (step % 64 == 0) {
        plumbline_error_t error;
        run.run().Flush(10000, &error);
      }
    }
    ASSERT_EQ(run.Close(), PLUMBLINE_OK);
    for (const auto& b : ReadRecord(RecordPath(dir.path(), v1::ROLE_TRAINER, rank, 0))) {
      for (const auto& e : b.evidence()) {
        if (!e.routing().has_sample()) continue;
        sampled[rank].insert(e.step());
        if (rank == 0 && e.step() > 1024) sample_bytes += e.routing().sample().ByteSizeLong();
      }
    }
  }
  EXPECT_EQ(sampled[0], sampled[1]);
  EXPECT_EQ(sampled[0], sampled[2]);
  EXPECT_TRUE(sampled[0].count(7));
  EXPECT_TRUE(sampled[0].count(1024));
  EXPECT_GT(sample_bytes, 0u);
  EXPECT_LE(static_cast<double>(sample_bytes) / (kSteps - 1024 - 1), 3072.0);
}

// A trainer that does nothing but be watched costs more than its budget: fewer steps are due, all
// still multiples of a power of two, and a series says so.
TEST(Record, TheGovernorThinsWhatCostsTooMuch) {
  TempDir dir;
  AgentOptions options = RecordOptions(dir.path());
  options.budget = 0.001;
  TestRun run(options);
  RouterCall call(256, 16, 2);
  run.RoutingSite("l");
  const auto start = std::chrono::steady_clock::now();
  uint64_t steps = 0, observed = 0;
  int64_t step = 0;
  const auto governed = [&] { return run.run().state().governor.stretch() > 1; };
  while (std::chrono::steady_clock::now() - start < std::chrono::seconds(30) && steps < 200) {
    run.run().StepBegin(step);
    if (run.Due("l", step)) {
      run.Observe("l", step, call);
      observed += governed();
    }
    steps += governed();
    run.run().StepEnd(step);
    ++step;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(governed());
  EXPECT_LE(observed, steps / 2 + 1);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  double stretch = 0;
  for (const auto& b : ReadRecord(FirstRecord(dir.path()))) {
    for (const auto& e : b.evidence()) {
      if (e.site().op() == kStretchSeries) stretch = e.scalar().value();
    }
  }
  EXPECT_GT(stretch, 1.0);
}

// What a binding spends around the calls counts too, although the calls cost nothing.
TEST(Record, TheGovernorCountsWhatTheCallerSays) {
  TempDir dir;
  AgentOptions options = RecordOptions(dir.path());
  options.budget = 0.9;
  TestRun run(options);
  const auto stretch = [&] { return run.run().state().governor.stretch(); };
  for (int64_t step = 0; stretch() == 1 && step < 3000; ++step) {
    run.run().StepBegin(step);
    run.run().Charge(100'000'000);  // of a step of milliseconds
    run.run().StepEnd(step);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GT(stretch(), 1u);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
}

TEST(Record, EachNthStepWhenAsked) {
  TempDir dir;
  AgentOptions options = RecordOptions(dir.path());
  options.every = 10;
  TestRun run(options);
  RouterCall call(8, 4, 1);
  run.RoutingSite("l");
  std::vector<int64_t> due;
  for (int64_t step = 0; step < 45; ++step) {
    run.run().StepBegin(step);
    if (run.Due("l", step)) {
      due.push_back(step);
      run.Observe("l", step, call);
    }
    run.run().StepEnd(step);
  }
  EXPECT_THAT(due, ::testing::ElementsAre(0, 10, 20, 30, 40));
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
}

TEST(Record, ARepeatedRunGetsTheNextAttempt) {
  TempDir dir;
  for (uint32_t repeat = 0; repeat < 3; ++repeat) {
    TestRun run(RecordOptions(dir.path()));
    EXPECT_EQ(run.run().state().source.attempt(), repeat);
    EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  }
  AgentOptions restarted = RecordOptions(dir.path());
  restarted.attempt = 7;
  {
    TestRun run(restarted);
    EXPECT_EQ(run.run().state().source.attempt(), 7u);
    run.Close();
  }
  AgentOptions other_rank = RecordOptions(dir.path());
  other_rank.rank = 1;
  other_rank.world_size = 2;
  TestRun run(other_rank);
  EXPECT_EQ(run.run().state().source.attempt(), 0u);
  run.Close();
  EXPECT_TRUE(std::filesystem::exists(dir / "trainer-r00000-a2.plr"));
  EXPECT_TRUE(std::filesystem::exists(dir / "trainer-r00000-a7.plr"));
  EXPECT_TRUE(std::filesystem::exists(dir / "trainer-r00001-a0.plr"));
}

TEST(Record, AnUnusableDirectoryIsAnErrorThatNamesIt) {
  TempDir dir;
  std::ofstream(dir / "file") << "x";
  const auto run = Run::Open(RecordOptions(dir / "file/sub"));
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(std::string(run.status().message()), HasSubstr(dir / "file/sub"));
}

// A disk that is full: nothing stops, flush and close say so, and once there is room again the
// record says exactly what it misses.
TEST(Record, AFullDiskIsCountedAndSaid) {
  TempDir dir;
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  TestRun run(RecordOptions(dir.path()));
  plumbline_error_t error;
  const auto step = [&](int64_t n) {
    run.run().StepBegin(n);
    EXPECT_EQ(run.run().Scalar(n, "loss", 1), PLUMBLINE_OK);
    run.run().StepEnd(n);
  };
  step(0);
  ASSERT_EQ(run.run().Flush(10000, &error), PLUMBLINE_OK) << error.text;
  rlimit full = before;
  full.rlim_cur = std::filesystem::file_size(FirstRecord(dir.path())) + 20;  // tears a frame too
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  for (int64_t n = 1; n <= 5; ++n) {
    step(n);
    EXPECT_EQ(run.run().Flush(10000, &error), PLUMBLINE_INTERNAL);
  }
  EXPECT_THAT(error.text, HasSubstr(FirstRecord(dir.path())));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  // Tried again once a second.
  int64_t n = 6;
  for (const auto start = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - start < std::chrono::seconds(30); ++n) {
    step(n);
    if (run.run().Flush(10000, &error) == PLUMBLINE_OK) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(run.Close(), PLUMBLINE_OK) << run.error();
  const auto batches = ReadRecord(FirstRecord(dir.path()));
  const Account account = AccountOf(batches);
  EXPECT_GE(account.lost_by_cause.at("record-write"), 5u);
  EXPECT_EQ(account.items + account.lost, static_cast<uint64_t>(n + 1));
  EXPECT_EQ(account.complete_through, n);
  EXPECT_TRUE(account.finished);
  for (size_t i = 0; i < batches.size(); ++i) EXPECT_EQ(batches[i].sequence(), i + 1);
}

// The thread's own CPU time over some seconds of nothing to do; the target is 0.3 % of a core.
TEST(Record, IdleCostsNextToNothing) {
  TempDir dir;
  TestRun run(RecordOptions(dir.path()));
  timespec cpu0{}, cpu1{};
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu0);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu1);
  const double share = (static_cast<double>(cpu1.tv_sec - cpu0.tv_sec) +
                        1e-9 * static_cast<double>(cpu1.tv_nsec - cpu0.tv_nsec)) /
                       4;
  RecordProperty("idle_cpu_percent", std::to_string(100 * share));
  std::printf("idle CPU: %.3f %% of a core\n", 100 * share);
  EXPECT_LT(share, 0.01);  // the target is 0.3 %; CPU accounting of a busy machine is coarse
  run.Close();
}

// The evidence of its last steps is there after the trainer was killed.
TEST(Record, SurvivesSigkill) {
  TempDir dir;
  const std::string program = std::string(PLUMBLINE_BINARY_DIR) + "/bin/agent_trainer_process";
  const std::string path = dir.path();
  char* argv[] = {const_cast<char*>(program.c_str()), const_cast<char*>("record"),
                  const_cast<char*>(path.c_str()), nullptr};
  pid_t pid = 0;
  ASSERT_EQ(posix_spawn(&pid, program.c_str(), nullptr, nullptr, argv, environ), 0) << program;
  const std::string file = FirstRecord(path);
  Account account;
  for (int i = 0; i < 3000 && account.complete_through < 30; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (std::filesystem::exists(file) && std::filesystem::file_size(file) > 100) {
      account = AccountOf(ReadRecord(file));
    }
  }
  kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_GE(account.complete_through, 30);
  const Account after = AccountOf(ReadRecord(file));
  EXPECT_GE(after.complete_through, account.complete_through);
  EXPECT_GE(after.items, account.items);
  // Each complete step has its three observations.
  EXPECT_GE(after.items, static_cast<uint64_t>(3 * (after.complete_through + 1)));
  EXPECT_FALSE(after.finished);
}

}  // namespace
}  // namespace plumbline::agent
