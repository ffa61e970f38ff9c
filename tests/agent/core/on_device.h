// The fake device for the agent's tests: its control, reset for each test, and calls on it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/agent/core/support.h"
#include "tests/kernels/device/fake_device.h"

namespace plumbline::agent::testing {

// Control of the library that the agent opens; set before the tests run.
inline const FakeDeviceControl* g_fake = nullptr;

inline std::vector<v1::Batch> Batches(const TempFolder& dir) {
  return ReadRecord(FirstRecord(dir.path()));
}

// A stream of the fake: any address is valid.
inline void* Stream(uintptr_t number) { return reinterpret_cast<void*>(number); }

// A tensor in the test's memory, on any declared device.
template <typename T>
struct PlacedTensor {
  PlacedTensor(std::vector<T> of, std::vector<int64_t> dims, DLDataType dtype, DLDevice device)
      : values(std::move(of)), shape(std::move(dims)) {
    t.data = values.data();
    t.device = device;
    t.dtype = dtype;
    t.ndim = static_cast<int32_t>(shape.size());
    t.shape = shape.data();
  }
  PlacedTensor(const PlacedTensor&) = delete;
  PlacedTensor& operator=(const PlacedTensor&) = delete;

  std::vector<T> values;
  std::vector<int64_t> shape;
  DLTensor t{};
};

inline constexpr DLDataType kPlacedFloat = {PLUMBLINE_DL_FLOAT, 32, 1};
inline constexpr DLDataType kPlacedIndex = {PLUMBLINE_DL_INT, 64, 1};

inline Site* DeclareSite(TestRun* run, int32_t kind, const char* layer, const char* op,
                         uint64_t* due) {
  plumbline_agent_site_t site{sizeof(site), kind, layer, op, 0, due, nullptr, 0};
  plumbline_error_t error{};
  void* made = nullptr;
  EXPECT_EQ(run->run().DeclareSite(site, &made, &error), PLUMBLINE_OK) << error.text;
  return static_cast<Site*>(made);
}

// Calls `calls.At(step)` in 20 steps, with `change(step)` before each. Returns the items of the
// record in any order.
template <typename Calls, typename Change>
std::vector<std::string> ItemsOfTwentySteps(TestRun* run, const TempFolder& dir, Calls* calls,
                                            Change change) {
  for (int64_t step = 0; step < 20; ++step) {
    change(step);
    run->run().StepBegin(step);
    EXPECT_THAT(calls->At(step), ::testing::Each(PLUMBLINE_OK)) << calls->error.text;
    run->run().StepEnd(step);
    // Waits until the device's ring has space, even if the drain thread wakes late.
    plumbline_error_t error{};
    if (step % 4 == 3) {
      EXPECT_EQ(run->run().Flush(60000, &error), PLUMBLINE_OK) << error.text;
    }
  }
  EXPECT_EQ(run->Close(), PLUMBLINE_OK) << run->error();
  std::vector<std::string> items;
  for (const v1::Batch& batch : Batches(dir)) {
    for (const v1::Evidence& e : batch.evidence()) items.push_back(e.SerializeAsString());
  }
  std::sort(items.begin(), items.end());
  return items;
}

// One step while the stream is held; its values are overwritten before the stream continues.
// Returns the evidence of that step.
template <typename Calls, typename Overwrite>
std::vector<v1::Evidence> ItemsOfAHeldStep(TestRun* run, const TempFolder& dir, Calls* calls,
                                           Overwrite overwrite) {
  g_fake->hold(true);
  run->run().StepBegin(0);
  EXPECT_THAT(calls->At(0), ::testing::Each(PLUMBLINE_OK)) << calls->error.text;
  overwrite();  // for example by a kernel before ours
  run->run().StepEnd(0);
  g_fake->hold(false);
  EXPECT_EQ(run->Close(), PLUMBLINE_OK);
  std::vector<v1::Evidence> items;
  for (const v1::Batch& batch : Batches(dir))
    items.insert(items.end(), batch.evidence().begin(), batch.evidence().end());
  return items;
}

// A RouterCall on a device.
struct DeviceCall : RouterCall {
  DeviceCall(int64_t tokens, int64_t experts, int32_t device = 0, void* stream = nullptr)
      : RouterCall(tokens, experts, 2) {
    for (const DLTensor* t : {get().scores, get().topk_indices}) {
      const_cast<DLTensor*>(t)->device = {kDLCUDA, device};
    }
    get().cuda_stream = stream;
  }
};

class Device : public ::testing::Test {
 protected:
  Device() {
    g_fake->reset();
    held_before_ = g_fake->held();
  }
  ~Device() override { EXPECT_EQ(g_fake->faults(), 0u); }
  uint64_t Held() const { return g_fake->held() - held_before_; }

  TempFolder dir_;
  uint64_t held_before_ = 0;
};

}  // namespace plumbline::agent::testing
