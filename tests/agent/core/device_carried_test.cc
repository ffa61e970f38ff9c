// CUDA tensors that are measured on the host, through the agent and over the fake device: they are
// copied in stream order, and the record holds the same bytes as for host tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/agent/core/on_device.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own

std::vector<float> Ramp(size_t n, float by) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = by * static_cast<float>(i % 97);
  return out;
}

// Three sites with one call each, and the statuses of these calls in the same order.
struct Carried {
  Carried(TestRun* of, DLDevice device)
      : run(of),
        ids({3, 1, 4, 1, 5, 9, 2, 6}, {2, 2, 2}, kPlacedIndex, device),
        train(Ramp(6 * 50, 0.1f), {6, 50}, kPlacedFloat, device),
        rollout(Ramp(6 * 50, 0.11f), {6, 50}, kPlacedFloat, device),
        tokens({1, 2, 3, 4, 5, 6}, {6}, kPlacedIndex, device),
        sequence({7, 7, 7, 8, 8, -1}, {6}, kPlacedIndex, device),
        logprobs(Ramp(6, -0.5f), {6}, kPlacedFloat, device) {
    tensor_site = DeclareSite(run, PLUMBLINE_KIND_TENSOR, "ids", "", &due);
    logits_site = DeclareSite(run, PLUMBLINE_KIND_LOGITS, "head", "", &due);
    logprobs_site = DeclareSite(run, PLUMBLINE_KIND_LOGPROBS, "policy", "", &due);
  }
  std::vector<plumbline_status_t> At(int64_t step) {
    plumbline_tensor_t tensor = PLUMBLINE_TENSOR_INIT;
    tensor.values = &ids.t;
    tensor.cuda_stream = Stream(3);
    plumbline_logits_t logits = PLUMBLINE_LOGITS_INIT;
    logits.train = &train.t;
    logits.rollout = &rollout.t;
    logits.tokens = &tokens.t;
    logits.cuda_stream = Stream(3);
    plumbline_logprobs_t sides = PLUMBLINE_LOGPROBS_INIT;
    sides.sequence_id = &sequence.t;
    sides.tokens = &tokens.t;
    sides.rollout = &logprobs.t;
    sides.worker = "w";
    sides.cuda_stream = Stream(3);
    return {run->run().ObserveTensor(tensor_site, step, tensor, &error),
            run->run().ObserveLogits(logits_site, step, logits, &error),
            run->run().ObserveLogprobs(logprobs_site, step, sides, &error)};
  }

  TestRun* run;
  PlacedTensor<int64_t> ids;
  PlacedTensor<float> train, rollout;
  PlacedTensor<int64_t> tokens, sequence;
  PlacedTensor<float> logprobs;
  uint64_t due = 0;
  Site *tensor_site, *logits_site, *logprobs_site;
  plumbline_error_t error{};
};

std::vector<std::string> Recorded(DLDevice device) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.traffic_bytes = 4000;  // so that some steps are not sampled
  TestRun run(options);
  Carried carried(&run, device);
  return ItemsOfTwentySteps(&run, dir, &carried, [&](int64_t step) {
    carried.ids.values[0] = step;
    carried.logprobs.values[1] = -static_cast<float>(step);
  });
}

TEST_F(Device, IntegersLogitsAndLogprobsAreTheHostsByteForByte) {
  const auto host = Recorded({kDLCPU, 0});
  EXPECT_EQ(g_fake->calls("copy"), 0u);
  const auto device = Recorded({kDLCUDA, 1});
  EXPECT_GT(host.size(), 40u);
  EXPECT_EQ(device, host);
  EXPECT_GT(g_fake->calls("copy"), 20u * 4u) << "an integer tensor, three columns, rows";
  EXPECT_EQ(Held(), 0u);
}

// The agent does not wait for a stream that has not reached the copy.
TEST_F(Device, WhatIsCarriedComesInTheStreamsOrder) {
  TestRun run(RecordOptions(dir_.path()));
  Carried carried(&run, {kDLCUDA, 0});
  int found = 0;
  for (const v1::Evidence& e :
       ItemsOfAHeldStep(&run, dir_, &carried, [&] { carried.ids.values.assign(8, 1000); })) {
    if (!e.has_tensor()) continue;
    ++found;
    EXPECT_EQ(e.sample_size(), 8u);
    EXPECT_EQ(e.tensor().summary().min(), 1000);
  }
  EXPECT_EQ(found, 1);
}

TEST_F(Device, WhatIsTooLargeToBeCarriedIsCounted) {
  AgentOptions options = RecordOptions(dir_.path());
  options.sample_max_bytes = 64;
  TestRun run(options);
  Carried carried(&run, {kDLCUDA, 0});
  run.run().StepBegin(0);
  EXPECT_THAT(carried.At(0), ::testing::Each(PLUMBLINE_DROPPED));
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(AccountOf(Batches(dir_)).lost_by_cause.at("device-tensor-not-read"), 3u);
  EXPECT_EQ(g_fake->calls("copy"), 0u);
}

TEST_F(Device, WhatIsCarriedIsLostByItsCause) {
  AgentOptions options = RecordOptions(dir_.path());
  options.device_ring_bytes = 64 << 10;
  TestRun run(options);
  Carried carried(&run, {kDLCUDA, 0});
  // A tensor of several axes of which no two can be copied densely.
  int64_t strides[3] = {1, 2, 4};
  carried.ids.t.strides = strides;
  run.run().StepBegin(0);
  EXPECT_THAT(carried.At(0), ::testing::ElementsAre(PLUMBLINE_DROPPED, PLUMBLINE_OK, PLUMBLINE_OK));
  carried.ids.t.strides = nullptr;
  g_fake->capture(Stream(3), true);
  EXPECT_THAT(carried.At(0), ::testing::Each(PLUMBLINE_DROPPED));
  g_fake->capture(Stream(3), false);
  g_fake->hold(true);
  uint64_t full = 0;
  for (int i = 0; i < 200; ++i) {
    for (const plumbline_status_t status : carried.At(0)) {
      ASSERT_GE(status, 0) << carried.error.text;
      full += status == PLUMBLINE_DROPPED;
    }
  }
  g_fake->hold(false);
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_GT(full, 0u);
  EXPECT_EQ(account.lost_by_cause.at("device-tensor-not-read"), 1u);
  EXPECT_EQ(account.lost_by_cause.at("stream-capture"), 3u);
  EXPECT_EQ(account.lost_by_cause.at("device-ring-full"), full);
  EXPECT_EQ(account.items, 2 + 600 - full);
}

// The device fails during the copies.
TEST_F(Device, ACopyThatFailsIsCounted) {
  g_fake->fail("copy", 0, kDeviceFailed, false);
  TestRun run(RecordOptions(dir_.path()));
  Carried carried(&run, {kDLCUDA, 0});
  run.run().StepBegin(0);
  EXPECT_THAT(carried.At(0), ::testing::Each(PLUMBLINE_DROPPED));
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(AccountOf(Batches(dir_)).lost_by_cause.at("device-error"), 3u);
}

}  // namespace
}  // namespace plumbline::agent
