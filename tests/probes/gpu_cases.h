// Tensors, updates and router calls on a GPU, and the results of the CPU references.
#pragma once

#include "tests/probes/gpu_ring.h"

#if defined(PLUMBLINE_HAVE_CUDA)
#include <cstring>
#include <vector>

#include "kernels/sample/gather.h"
#include "tests/kernels/device/gpu.h"
#include "tests/kernels/routing/case.h"
#include "tests/kernels/routing/stats_equal.h"
#include "tests/kernels/tensor/stats_equal.h"
#include "tests/probes/tensor_case.h"

namespace plumbline::probes {

// A case, and the same on device 0 with the same strides.
class GpuCase {
 public:
  explicit GpuCase(uint32_t seed, int64_t max_tokens = 900)
      : case_(CaseMaker(seed, {.aligned = true, .max_tokens = max_tokens}).Make()) {
    host.input = case_.in;
    device.input = copies_.Copy(case_);
  }

  RoutingCall host, device;

 private:
  RoutingCase case_;
  DeviceCopies copies_;
};

// Compares the rows of a router call that a ring kept with those of the host.
inline void ExpectRows(const RoutingCall& host, const RoutingCall& kept) {
  std::vector<std::byte> slot(SlotBytes(host) + 64);
  StoreRoutingCall(host, slot.data());
  const RoutingCall want = LoadRoutingCall(slot.data());
  const auto got = Tensors(kept.input);
  const auto wanted = Tensors(want.input);
  for (size_t i = 0; i < kRoutingTensors; ++i) {
    ASSERT_EQ(got[i]->present(), wanted[i]->present());
    if (!got[i]->present()) continue;
    const auto bytes = static_cast<size_t>(got[i]->elements()) * DTypeSize(got[i]->dtype);
    EXPECT_EQ(std::memcmp(got[i]->data, wanted[i]->data, bytes), 0) << TensorName(i);
  }
}

inline void ExpectCounts(const RoutingCall& host, const DeviceItem& item) {
  RoutingStats expected, device;
  ASSERT_TRUE(SummariseRouting(host.input, &expected).ok());
  ASSERT_TRUE(FinishRouting(*item.plan, *item.raw, &device).ok());
  ExpectSame(device, expected);
}

class GpuTensors : public GpuRing {
 protected:
  TensorCall Copy(const TensorCase& c) {
    TensorCall call = c.host();
    call.values = copies_.Copy(call.values, c.values().storage);
    return call;
  }
  UpdateCall Copy(const UpdateCase& c) {
    UpdateCall call = c.host();
    UpdateInput& in = call.input;
    TensorView* const views[] = {&in.before,   &in.after,         &in.intended,
                                 &in.gradient, &in.moment_before, &in.moment_after};
    for (size_t i = 0; i < kUpdateTensors; ++i) {
      if (views[i]->present()) *views[i] = copies_.Copy(*views[i], c.values()[i].storage);
    }
    return call;
  }
  static void ExpectElements(const TensorView& host, const TensorSample& sample,
                             const std::byte* found) {
    std::vector<uint64_t> indices(static_cast<size_t>(sample.elements()));
    sample.Indices(indices.data());
    std::vector<std::byte> expected(indices.size() * DTypeSize(host.dtype));
    ASSERT_TRUE(GatherSamples(host, indices, expected.data()).ok());
    if (expected.empty()) return;
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(std::memcmp(found, expected.data(), expected.size()), 0);
  }
  static void ExpectHosts(const TensorCall& host, const TensorJob& job) {
    TensorStats stats;
    ASSERT_TRUE(MeasureTensor(host.values, &stats).ok());
    ExpectSame(FinishItem(job.item, job.results()), stats);
    if (job.sampled) ExpectElements(host.values, job.sample, job.elements());
  }
  static void ExpectHosts(const UpdateCall& host, const UpdateJob& job) {
    UpdateStats stats;
    const UpdateInput& in = host.input;
    ASSERT_TRUE(CheckUpdate(in.before, in.after, in.intended, &stats).ok());
    const UpdateStats found = FinishItem(job.item, job.results());
    static_assert(sizeof(found) == 11 * 8, "no padding");
    EXPECT_EQ(std::memcmp(static_cast<const void*>(&found), &stats, sizeof(stats)), 0);
    if (!job.sampled) return;
    const auto expected = Tensors(in), elements = Tensors(ElementsOf(job));
    for (size_t i = 0; i < kUpdateTensors; ++i) {
      ASSERT_EQ(elements[i].present(), expected[i].present());
      if (!expected[i].present()) continue;
      ExpectElements(expected[i], job.sample, static_cast<const std::byte*>(elements[i].data));
    }
  }

  DeviceCopies copies_;
};

}  // namespace plumbline::probes
#endif
