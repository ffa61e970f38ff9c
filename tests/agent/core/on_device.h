// The fake device as the agent's tests have it: its control, reset for each test, and calls on it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/agent/core/support.h"
#include "tests/kernels/device/fake_device.h"

namespace plumbline::agent::testing {

// Of the library that the agent opens; set before the tests run.
inline const FakeDeviceControl* g_fake = nullptr;

inline std::vector<v1::Batch> Batches(const TempFolder& dir) {
  return ReadRecord(FirstRecord(dir.path()));
}

// A stream of the fake: any address.
inline void* Stream(uintptr_t number) { return reinterpret_cast<void*>(number); }

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
