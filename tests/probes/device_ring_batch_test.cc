// Tests tensors and updates that are launched together, on the fake device. The evidence of each
// equals that of a separate launch byte for byte, and the launches are counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "probes/device/job_batch.h"
#include "tests/probes/device_tensors.h"

namespace plumbline::probes {
namespace {

class Batch : public TensorRing {
 protected:
  // Launches the cases of the seeds that keep no row as one group. The evidence equals that of the
  // host.
  template <typename Case, typename Job>
  void ExpectTogether(DeviceRing* ring, uint32_t first, int most, int sampled_of_three) {
    SCOPED_TRACE(first);
    cases_.clear();
    JobGroup<Job> group;
    std::vector<std::string> expected;
    for (uint32_t seed = first; static_cast<int>(group.jobs.size()) < most; ++seed) {
      auto one = std::make_shared<Case>(seed);
      const MeasureOptions options = OptionsOf(seed, static_cast<int>(seed % 3) < sampled_of_three);
      Job job;
      bool prepared = false;
      ASSERT_EQ(ring->Plan(one->device(), options, Stream(first % 4), &prepared, &job, &error_),
                DeviceOutcome::kTaken)
          << error_.text;
      if (job.row.present()) continue;
      if (!group.Fits(job)) break;
      group.Add({nullptr, 5, static_cast<uint32_t>(group.jobs.size()), options.sampled}, job);
      expected.push_back(HostEvidence(one->host(), options));
      cases_.push_back(std::move(one));
    }
    std::array<DeviceOutcome, kJobsOfLaunch<Job>> outcomes;
    ring->ObserveAll(std::span<const WaitingJob<Job>>(group.jobs), Stream(first % 4), outcomes,
                     &error_);
    DeviceItem item;
    for (uint32_t i = 0; i < expected.size(); ++i, ring->Pop()) {
      ASSERT_EQ(outcomes[i], DeviceOutcome::kTaken) << error_.text;
      ASSERT_TRUE(ring->Front(&item)) << i;
      EXPECT_EQ(item.tag.call, i);
      EXPECT_EQ(DeviceEvidence(item), expected[i]) << i;
    }
    EXPECT_FALSE(ring->Front(&item));
    last_ = expected.size();
  }

  std::vector<std::shared_ptr<void>> cases_;
  size_t last_ = 0;  // jobs of the last group
};

TEST_F(Batch, EachTensorIsTheHostsByteForByte) {
  const auto ring = Open();
  uint32_t groups = 0;
  size_t largest = 0;
  for (uint32_t first = 0; first < 1200; first += 20, ++groups) {
    const int most = static_cast<int>(first / 20 % kTensorsOfLaunch) + 1;
    ExpectTogether<TensorCase, TensorJob>(ring.get(), first, most, static_cast<int>(groups % 4));
    if (HasFailure()) return;
    largest = std::max(largest, last_);
  }
  EXPECT_EQ(fake_.calls("measure_tensors"), groups);
  EXPECT_GE(largest, 8u) << "with f64 among them the workspace is full before the arguments";
  EXPECT_TRUE(ring->empty());
}

TEST_F(Batch, OfUpdatesToo) {
  const auto ring = Open();
  uint32_t groups = 0;
  for (uint32_t first = 0; first < 480; first += 6, ++groups) {
    const int most = static_cast<int>(first / 6 % kUpdatesOfLaunch) + 1;
    ExpectTogether<UpdateCase, UpdateJob>(ring.get(), first, most, static_cast<int>(groups % 4));
    if (HasFailure()) return;
  }
  EXPECT_EQ(fake_.calls("check_updates"), groups);
  EXPECT_GT(fake_.calls("gather"), 0u);
  EXPECT_TRUE(ring->empty());
}

// Small tensors of one type, of which many fit into a launch.
struct Small {
  explicit Small(size_t n, bool sampled) : values(n, std::vector<float>(300)) {
    for (size_t i = 0; i < n; ++i) {
      std::iota(values[i].begin(), values[i].end(), static_cast<float>(i));
      TensorCall call;
      call.role = "weight";
      call.values = TensorView::Dense(values[i].data(), DType::kF32, 300);
      options.push_back(OptionsOf(static_cast<uint32_t>(10 * i), sampled));
      hosts.push_back(call);
    }
  }
  // Plans the tensors as a group.
  void Plan(DeviceRing* ring, void* stream, JobGroup<TensorJob>* group) const {
    DeviceError error{};
    for (size_t i = 0; i < hosts.size(); ++i) {
      TensorCall device = hosts[i];
      device.values.device = 0;
      TensorJob job;
      bool prepared = false;
      ASSERT_EQ(ring->Plan(device, options[i], stream, &prepared, &job, &error),
                DeviceOutcome::kTaken)
          << error.text;
      ASSERT_TRUE(group->Fits(job));
      group->Add({nullptr, 5, static_cast<uint32_t>(i), options[i].sampled}, job);
    }
  }
  std::vector<std::vector<float>> values;
  std::vector<TensorCall> hosts;
  std::vector<MeasureOptions> options;
};

std::vector<DeviceOutcome> ObserveAll(DeviceRing* ring, const JobGroup<TensorJob>& group,
                                      void* stream = nullptr) {
  std::vector<DeviceOutcome> outcomes(group.jobs.size());
  DeviceError error{};
  ring->ObserveAll(std::span<const WaitingJob<TensorJob>>(group.jobs), stream, outcomes, &error);
  return outcomes;
}

// Fifteen tensors are one launch. Their elements are one more launch, or none if they are few.
TEST_F(Batch, LaunchesAreCounted) {
  const auto ring = Open();
  fake_.hold(true);
  for (const auto& [n, sampled, launches] :
       {std::tuple{15, false, 1}, {15, true, 2}, {6, true, 1}, {7, true, 2}, {1, true, 1}}) {
    SCOPED_TRACE(n);
    const Small small(static_cast<size_t>(n), sampled);
    JobGroup<TensorJob> group;
    small.Plan(ring.get(), nullptr, &group);
    EXPECT_THAT(ObserveAll(ring.get(), group), ::testing::Each(DeviceOutcome::kTaken));
    DeviceItem item;
    for (int i = 0; i < launches; ++i) {
      fake_.advance(1);
      EXPECT_FALSE(ring->Front(&item)) << "its event is still to come";
    }
    fake_.advance(1);
    for (int i = 0; i < n; ++i, ring->Pop()) {
      ASSERT_TRUE(ring->Front(&item));
      EXPECT_EQ(DeviceEvidence(item),
                HostEvidence(small.hosts[item.tag.call], small.options[item.tag.call]));
    }
    EXPECT_FALSE(ring->Front(&item));
    EXPECT_TRUE(ring->empty());
  }
  fake_.hold(false);
}

// The texts belong to the caller and are valid only until the call returns.
TEST_F(Batch, TextsAreKeptWhileACallWaits) {
  const auto ring = Open();
  Small small(2, true);
  auto role = std::make_unique<std::string>("weight");
  for (TensorCall& call : small.hosts) call.role = *role;
  JobGroup<TensorJob> group;
  small.Plan(ring.get(), nullptr, &group);
  *role = "XXXXXX";
  role.reset();
  const JobGroup<TensorJob> moved = std::move(group);
  ObserveAll(ring.get(), moved);
  DeviceItem item;
  for (int i = 0; i < 2; ++i, ring->Pop()) {
    ASSERT_TRUE(ring->Front(&item));
    EXPECT_EQ(item.tensor->call.role, "weight");
  }
}

// The GPU's time is divided by the work of each call.
TEST_F(Batch, TheGpusTimeIsDivided) {
  const auto ring = Open();
  std::vector<float> large(70000), empty;  // five tiles, and none
  Small small(3, true);
  small.hosts[1].values = TensorView::Dense(large.data(), DType::kF32, 70000);
  JobGroup<TensorJob> group;
  small.Plan(ring.get(), nullptr, &group);
  ObserveAll(ring.get(), group);
  std::vector<uint64_t> times;
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop()) times.push_back(item.gpu_ns);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0], times[2]);
  EXPECT_GT(times[0], 0u);
  EXPECT_NEAR(static_cast<double>(times[1]), 5.0 * static_cast<double>(times[0]), 8);
}

// There is no space for all jobs. Some find space, first without their elements.
TEST_F(Batch, AFullRingTakesWhatItCan) {
  DeviceLimits limits;
  limits.ring_bytes = 64 << 10;
  const auto ring = Open(limits);
  const Small small(15, true);
  JobGroup<TensorJob> group;
  small.Plan(ring.get(), nullptr, &group);
  fake_.hold(true);
  const std::vector<DeviceOutcome> outcomes = ObserveAll(ring.get(), group);
  fake_.hold(false);
  EXPECT_EQ(outcomes[0], DeviceOutcome::kTaken);
  EXPECT_EQ(outcomes[14], DeviceOutcome::kRingFull);
  DeviceItem item;
  size_t out = 0;
  for (; ring->Front(&item); ring->Pop(), ++out) {
    const uint32_t i = item.tag.call;
    EXPECT_LE(outcomes[i], DeviceOutcome::kTakenWithoutRows);
    EXPECT_EQ(item.tensor->left_out, outcomes[i] == DeviceOutcome::kTakenWithoutRows);
    if (!item.tensor->left_out) {
      EXPECT_EQ(DeviceEvidence(item), HostEvidence(small.hosts[i], small.options[i]));
    }
  }
  EXPECT_EQ(out, 15u - static_cast<size_t>(
                           std::count(outcomes.begin(), outcomes.end(), DeviceOutcome::kRingFull)));
}

TEST_F(Batch, NoEventIsNoRoom) {
  DeviceLimits limits;
  limits.events = 1;
  const auto ring = Open(limits);
  const Small small(3, false);
  JobGroup<TensorJob> group;
  small.Plan(ring.get(), nullptr, &group);
  fake_.hold(true);
  EXPECT_THAT(ObserveAll(ring.get(), group), ::testing::Each(DeviceOutcome::kTaken));
  EXPECT_THAT(ObserveAll(ring.get(), group), ::testing::Each(DeviceOutcome::kRingFull));
  fake_.hold(false);
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop()) {
  }
  EXPECT_TRUE(ring->empty());
}

// If any part of the launch fails, no call is returned as measured, and no resource is held at the
// end.
TEST_F(Batch, WhatFailsIsReportedForAll) {
  for (const Fault& fault : {Fault{"measure_tensors", 0, false}, Fault{"gather", 0, false},
                             Fault{"record_event", 0, true}, Fault{"stream_id", 15, false}}) {
    SCOPED_TRACE(fault.call);
    fake_.reset();
    const uint64_t before = fake_.held();
    auto ring = Open();
    const Small small(15, true);
    JobGroup<TensorJob> group;
    fake_.fail(fault.call, fault.nth, kDeviceFailed, false);
    small.Plan(ring.get(), nullptr, &group);
    EXPECT_THAT(ObserveAll(ring.get(), group), ::testing::Each(DeviceOutcome::kFailed));
    EXPECT_THAT(ObserveAll(ring.get(), group), ::testing::Each(DeviceOutcome::kFailed));
    DeviceItem item;
    EXPECT_FALSE(ring->Front(&item));
    ring.reset();
    if (!fault.leaks) {
      EXPECT_EQ(fake_.held(), before);
    }
  }
}

// If the device fails while the calls are in progress, each is returned unmeasured.
TEST_F(Batch, ADeviceThatFailsLosesEach) {
  auto ring = Open();
  const Small small(4, true);
  JobGroup<TensorJob> group;
  small.Plan(ring.get(), nullptr, &group);
  ObserveAll(ring.get(), group);
  fake_.fail("event_passed", 1, kDeviceFailed, true);
  DeviceItem item;
  for (uint32_t i = 0; i < 4; ++i, ring->Pop()) {
    ASSERT_TRUE(ring->Front(&item));
    EXPECT_EQ(item.tag.call, i);
    EXPECT_EQ(item.measured, i == 0);
  }
  EXPECT_FALSE(ring->Front(&item));
  EXPECT_TRUE(ring->empty());
}

// A capture of the stream begins between the calls and their launch.
TEST_F(Batch, ACaptureThatBeganMeanwhileLosesAll) {
  const auto ring = Open();
  const Small small(3, true);
  JobGroup<TensorJob> group;
  small.Plan(ring.get(), Stream(7), &group);
  fake_.capture(Stream(7), true);
  EXPECT_THAT(ObserveAll(ring.get(), group, Stream(7)), ::testing::Each(DeviceOutcome::kCapturing));
  fake_.capture(Stream(7), false);
  EXPECT_THAT(ObserveAll(ring.get(), group, Stream(7)), ::testing::Each(DeviceOutcome::kTaken));
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop()) {
  }
}

// f64 has many exponents, so fewer tensors fit into a launch's workspace.
TEST_F(Batch, AsManyAsTheWorkspaceHolds) {
  const auto ring = Open();
  std::vector<double> values(10, 1.5);
  TensorCall call;
  call.values = TensorView::Dense(values.data(), DType::kF64, 10);
  call.values.device = 0;
  JobGroup<TensorJob> group;
  TensorJob job;
  bool prepared = false;
  ASSERT_EQ(ring->Plan(call, OptionsOf(0, false), nullptr, &prepared, &job, &error_),
            DeviceOutcome::kTaken);
  while (group.Fits(job)) group.Add({nullptr, 5, 0, false}, job);
  EXPECT_EQ(group.jobs.size(), 4u);
  EXPECT_THAT(ObserveAll(ring.get(), group), ::testing::Each(DeviceOutcome::kTaken));
  DeviceItem item;
  for (; ring->Front(&item); ring->Pop()) {
    EXPECT_EQ(DeviceEvidence(item), [&] {
      TensorCall host = call;
      host.values.device = -1;
      return HostEvidence(host, OptionsOf(0, false));
    }());
  }
}

}  // namespace
}  // namespace plumbline::probes
