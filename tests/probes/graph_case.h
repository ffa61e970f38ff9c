// Calls in graphs on the fake device, and the evidence of every kind of item.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "probes/matmul_probe.h"
#include "probes/routing_probe.h"
#include "tests/probes/device_tensors.h"
#include "tests/probes/graph_owner.h"

namespace plumbline::probes {

inline std::string HostEvidence(const RoutingCall& call, const MeasureOptions& options) {
  v1::Routing out;
  const absl::Status s = MeasureRouting(call, options.sampled, options.sample_max_bytes, &out);
  EXPECT_TRUE(s.ok()) << s;
  return out.SerializeAsString();
}
inline std::string HostEvidence(const MatmulCall& host, const MeasureOptions& options) {
  std::vector<std::byte> memory;
  MatmulCall call = host;
  Sample(options, &memory, &call);
  v1::Evidence out;
  const absl::Status s = Measure(call, options, &out);
  EXPECT_TRUE(s.ok()) << s;
  return out.SerializeAsString();
}

// Returns the evidence of any item; `options`: the request of its step.
inline std::string EvidenceOf(const DeviceItem& item, MeasureOptions options) {
  options.sampled = item.tag.sampled;
  if (item.product != nullptr) {
    v1::Evidence out;
    EXPECT_TRUE(Measure(*item.product, options, &out).ok());
    return out.SerializeAsString();
  }
  if (item.plan == nullptr) return DeviceEvidence(item);
  v1::Routing out;
  EXPECT_TRUE(FinishRouting(item.call, *item.plan, *item.raw, item.tag.sampled,
                            options.sample_max_bytes, &out)
                  .ok());
  return out.SerializeAsString();
}

// A product of small matrices.
class ProductCase {
 public:
  ProductCase(int64_t m, int64_t n, int64_t k)
      : a_(static_cast<size_t>(m * k)),
        b_(static_cast<size_t>(k * n)),
        d_(static_cast<size_t>(m * n)) {
    for (size_t i = 0; i < a_.size(); ++i) a_[i] = static_cast<float>(i % 17);
    for (size_t i = 0; i < b_.size(); ++i) b_[i] = static_cast<float>(i % 13);
    for (size_t i = 0; i < d_.size(); ++i) d_[i] = static_cast<float>(i % 11);
    host.input.a = TensorView::Dense(a_.data(), DType::kF32, m, k);
    host.input.b = TensorView::Dense(b_.data(), DType::kF32, k, n);
    host.input.d = TensorView::Dense(d_.data(), DType::kF32, m, n);
    host.library = "cublas";
    Complete(&host);
  }
  ProductCase(const ProductCase&) = delete;
  ProductCase& operator=(const ProductCase&) = delete;
  MatmulCall device() const {
    MatmulCall call = host;
    for (TensorView* v : {&call.input.a, &call.input.b, &call.input.d}) v->device = 0;
    return call;
  }
  std::vector<float>& d() { return d_; }
  MatmulCall host;

 private:
  std::vector<float> a_, b_, d_;
};

class GraphRing : public OnFakeDevice {
 protected:
  // A site is any address.
  static void* Site(uintptr_t number) { return reinterpret_cast<void*>(0x10000 + 16 * number); }

  // Captures the call on `stream`, as a graph that is replayed in the order of kReplays.
  template <typename Call>
  DeviceOutcome Capture(DeviceRing* ring, const Call& call, void* stream, void* site) {
    fake_.capture(stream, true);
    const DeviceOutcome outcome = ring->Capture(call, stream, replays_, site, &error_);
    fake_.capture(stream, false);
    return outcome;
  }
  // One step, in which the site's call is due and its graph replayed once.
  DeviceOutcome Step(DeviceRing* ring, int64_t step, void* stream, void* site,
                     const MeasureOptions& options, int replays = 1) {
    owner_.stop_conditions = {{site, {true, options}}};
    const DeviceOutcome begun = ring->BeginStep(step, &owner_, &error_);
    for (int i = 0; i < replays; ++i) fake_.replay(stream, replays_);
    const DeviceOutcome ended = ring->EndStep(&error_);
    return begun == DeviceOutcome::kTaken ? ended : begun;
  }

  void* const replays_ = Stream(3);
  TestOwner owner_;
};

}  // namespace plumbline::probes
