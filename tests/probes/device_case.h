// Router calls on the fake device, and its control, reset for each test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "probes/calls/routing_call.h"
#include "probes/device/ring.h"
#include "tests/kernels/device/fake_device.h"
#include "tests/kernels/routing/case.h"

namespace plumbline::probes {

// A random case as a call. `host()` has its tensors in host memory; `device()` has the same tensors
// as if they were on device 0.
class DeviceCase {
 public:
  explicit DeviceCase(uint32_t seed, int64_t max_tokens = 300)
      : case_(CaseMaker(seed, {.aligned = true, .max_tokens = max_tokens}).Make()) {
    call_.input = case_.in;
    call_.mode = "train";
    call_.capacity = seed;
  }
  const RoutingCall& host() const { return call_; }
  RoutingCall device(int ordinal = 0) const {
    RoutingCall call = call_;
    for (TensorView* v : Tensors(call.input)) v->device = ordinal;
    return call;
  }

 private:
  RoutingCase case_;
  RoutingCall call_;
};

// A routing call of `tokens` rows, `experts` experts and `k` choices per row.
class PlainCase {
 public:
  PlainCase(int64_t tokens, int64_t experts, int64_t k = 2)
      : scores_(static_cast<size_t>(tokens * experts)), topk_(static_cast<size_t>(tokens * k)) {
    for (size_t i = 0; i < scores_.size(); ++i) scores_[i] = static_cast<float>(i * 7 % 31);
    for (size_t i = 0; i < topk_.size(); ++i) topk_[i] = static_cast<int64_t>(i) % experts;
    call.input.scores = TensorView::Dense(scores_.data(), DType::kF32, tokens, experts);
    call.input.topk_indices = TensorView::Dense(topk_.data(), DType::kI64, tokens, k);
    call.input.top_k = static_cast<int>(k);
    for (TensorView* v : Tensors(call.input)) v->device = 0;
  }
  PlainCase(const PlainCase&) = delete;
  PlainCase& operator=(const PlainCase&) = delete;
  std::vector<float>& scores() { return scores_; }
  RoutingCall call;

 private:
  std::vector<float> scores_;
  std::vector<int64_t> topk_;
};

// A stream of the fake: any address.
inline void* Stream(uintptr_t number) { return reinterpret_cast<void*>(number); }

// Makes the nth call of one of the table's functions fail.
struct Fault {
  const char* call;
  int nth;
  bool leaks;  // it is unknown whether the device still writes
};

class OnFakeDevice : public ::testing::Test {
 protected:
  OnFakeDevice() {
    fake_.reset();
    held_before_ = fake_.held();
  }
  ~OnFakeDevice() override { EXPECT_EQ(fake_.faults(), 0u); }

  // Device resources that this test holds, as fake_.held() counts them.
  uint64_t Held() const { return fake_.held() - held_before_; }

  std::unique_ptr<DeviceRing> Open(const DeviceLimits& limits = {}) {
    DeviceError error{};
    auto ring = DeviceRing::Open(&plumbline_device_table, 0, limits, &error);
    EXPECT_NE(ring, nullptr) << error.text;
    return ring;
  }

  DeviceOutcome Observe(DeviceRing* ring, const RoutingCall& call, uint32_t number = 0,
                        bool sampled = true, void* stream = nullptr) {
    bool prepared = false;
    return ring->Observe(call, stream, {nullptr, 5, number, sampled}, &prepared, &error_);
  }

  const FakeDeviceControl& fake_ = plumbline_fake_device;
  uint64_t held_before_ = 0;
  DeviceError error_{};
};

// The tests of one ring.
class Ring : public OnFakeDevice {};

}  // namespace plumbline::probes
