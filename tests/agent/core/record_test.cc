// A run that records: every observation is in the record as it was made, or is counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "agent/core/sites/losses.h"
#include "base/clock.h"
#include "plumbline/steps.h"
#include "tests/agent/core/observed_run.h"
#include "tests/agent/core/support.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own
using ::testing::HasSubstr;

TEST(Record, HoldsEveryObservation) {
  TempFolder dir;
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

// The sample holds the trainer's rows, bit for bit, at the time of the call.
TEST(Record, SamplesAreTheRowsAtTheTimeOfTheCall) {
  TempFolder dir;
  TestRun run(RecordOptions(dir.path()));
  RouterCall call(16, 4, 1);
  const std::vector<float> before = call.scores();
  run.run().StepBegin(0);
  ASSERT_EQ(run.Observe("l", 0, call), PLUMBLINE_OK);
  for (float& s : call.scores()) s = -1;  // the trainer reuses its memory
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

TEST(Record, StrangeShapesAndValuesAreCountedNotCrashed) {
  TempFolder dir;
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
  TempFolder dir;
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

// A call larger than the ring is measured on the caller's thread, and records why it has no sample.
TEST(Record, CallsLargerThanTheRingKeepTheirSummary) {
  TempFolder dir;
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

// If there are more items than the ring can hold at once, exactly the refused items are missing.
TEST(Record, RingOverflowIsCounted) {
  TempFolder dir;
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
  TempFolder dir;
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
  TempFolder dir;
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
      EXPECT_GT(e.step(), complete) << "evidence of a step that was reported as complete";
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

// Stages by marks are evidence like spans; those that could not be read are counted.
TEST(Record, MarkedStagesBelongToTheStepTheyEndInAndLostOnesAreCounted) {
  TempFolder dir;
  TestRun run(RecordOptions(dir.path()));
  plumbline_error_t error;
  const auto marks = std::make_unique<plumbline_marks_t>();
  run.run().StepBegin(4);
  ASSERT_EQ(run.run().Marks(marks.get()), PLUMBLINE_OK);
  const uint64_t before = UnixNs();
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_FORWARD);
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_BACKWARD);
  run.run().StepEnd(4);
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_NONE);
  run.run().Flush(10000, &error);
  run.run().StepBegin(5);
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_OPTIMIZER);
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_NONE);
  marks->lost = 3;  // as a thread counts marks that exceed its memory
  run.run().StepEnd(5);
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_DATA);
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_NONE);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);

  std::map<std::string, v1::Evidence> spans;
  std::map<std::string, uint64_t> lost;
  int64_t complete = -1;
  for (const auto& b : ReadRecord(FirstRecord(dir.path()))) {
    for (const auto& e : b.evidence()) {
      EXPECT_GT(e.step(), complete) << "evidence of a step that was reported as complete";
      spans[e.span().name()] = e;
    }
    for (const auto& l : b.losses()) lost[l.cause()] += l.count();
    for (const auto& p : b.progress()) complete = p.complete_through();
  }
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans.at("forward").step(), 4);
  EXPECT_EQ(spans.at("backward").step(), 5);
  EXPECT_EQ(spans.at("optimizer").step(), 5);
  EXPECT_EQ(spans.at("data").step(), 6);
  EXPECT_EQ(spans.at("backward").span().kind(), v1::Span::KIND_BACKWARD);
  EXPECT_GE(spans.at("forward").span().start_ns() + 1'000'000, before);
  EXPECT_LE(spans.at("forward").span().start_ns(), UnixNs() + 1'000'000);
  EXPECT_EQ(lost, (std::map<std::string, uint64_t>{{"stage-marks", 3}}));
}

// Writes a step as a loop does (plumbline/steps.h).
void WriteStep(plumbline_steps_t* steps, int64_t step, double loss, double rate, uint64_t given) {
  plumbline_step_facts_t& facts = steps->facts[steps->written % PLUMBLINE_STEPS];
  facts.step = step;
  facts.end_ns = static_cast<uint64_t>(step) + 1;
  facts.given = given;
  facts.value[0] = loss;
  facts.value[1] = rate;
  __atomic_store_n(&steps->written, steps->written + 1, __ATOMIC_RELEASE);
}

// Steps that the loop writes itself and steps by calls are in order, each once. A NaN remains a
// NaN, an absent value remains absent, and a step that goes back is lost and counted.
TEST(Record, StepsThatTheLoopWritesItself) {
  const TempFolder dir;
  Recorded recorded(dir.path());
  const auto steps = std::make_unique<plumbline_steps_t>();
  const char* const names[] = {"loss", "lr"};
  ASSERT_EQ(recorded.run->Steps(names, steps.get()), PLUMBLINE_OK);
  int64_t step = 0;
  for (; step < 700; ++step) {
    if (step % 10 == 5) {
      recorded.run->StepBegin(step);
      recorded.run->Scalar(step, "loss", static_cast<double>(step));
      recorded.run->StepEnd(step);
    } else {
      const double loss = step == 333 ? std::nan("") : static_cast<double>(step);
      WriteStep(steps.get(), step, loss, 0.5, step < 300 ? 3 : 1);
    }
  }
  WriteStep(steps.get(), 17, -1, 0.5, 1);
  std::map<std::string, std::map<int64_t, double>> seen;
  size_t count = 0;
  for (const v1::Evidence& e : recorded.Close(dir.path())) {
    if (!e.has_scalar()) continue;
    seen[e.site().op()][e.step()] = e.scalar().value();
    ++count;
  }
  EXPECT_EQ(seen["loss"].size(), 700u);
  EXPECT_EQ(seen["lr"].size(), 270u);
  EXPECT_EQ(count, 970u);
  for (const auto& [at, value] : seen["loss"]) {
    if (at == 333) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, static_cast<double>(at));
    }
  }
  EXPECT_EQ(steps->read, steps->written);
  EXPECT_EQ(recorded.account.lost_by_cause.at(LossCauseName(LossCause::kLate)), 1u);
}

}  // namespace
}  // namespace plumbline::agent
