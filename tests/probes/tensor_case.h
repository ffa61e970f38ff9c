// Tensors and updates of every type and layout as calls, on the host or as if on a device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>

#include "probes/calls/measure.h"
#include "probes/calls/tensor_call.h"
#include "probes/calls/update_call.h"
#include "tests/kernels/device/values_case.h"

namespace plumbline::probes {

// The random choices of a case. Equal seeds give equal choices.
class CaseDraw {
 public:
  explicit CaseDraw(uint32_t seed) : random_(seed * 7919u + 17u) {}
  uint64_t operator()(uint64_t below) { return random_() % below; }
  DType Floating() { return kFloatingTypes[(*this)(std::size(kFloatingTypes))]; }
  Kind AnyKind() { return static_cast<Kind>((*this)(static_cast<uint64_t>(Kind::kCount))); }
  int64_t Count() {
    constexpr int64_t kCounts[] = {0, 1, 3, 33, 255, 256, 257, 1000, 4097, 20011};
    return kCounts[(*this)(std::size(kCounts))];
  }
  // Not misaligned, because data on a device never are.
  int Layout() { return static_cast<int>(std::array{0, 2, 3, 4, 5}[(*this)(5)]); }

 private:
  std::mt19937_64 random_;
};

// One case on the host, and the same case marked as on a device.
class TensorCase {
 public:
  explicit TensorCase(uint32_t seed) {
    CaseDraw draw(seed);
    const DType t = draw.Floating();
    values_ = Lay(t, ValuesMaker(seed).Make(t, draw.AnyKind(), draw.Count()), draw.Layout());
    constexpr const char* kRoles[] = {"weight", "gradient", "", "probabilities", "positions"};
    host_.values = values_.view;
    host_.role = kRoles[draw(std::size(kRoles))];
    host_.replicas = draw(2) == 0 ? "data-parallel" : "";
    host_.target_format = draw(2) == 0 ? static_cast<int32_t>(DType::kE4M3) : 0;
  }
  TensorCase(const TensorCase&) = delete;
  TensorCase& operator=(const TensorCase&) = delete;
  const ValuesCase& values() const { return values_; }
  const TensorCall& host() const { return host_; }
  TensorCall device(int ordinal = 0) const {
    TensorCall call = host_;
    call.values.device = ordinal;
    return call;
  }

 private:
  ValuesCase values_;
  TensorCall host_;
};

class UpdateCase {
 public:
  explicit UpdateCase(uint32_t seed) {
    CaseDraw draw(seed);
    const DType t = draw.Floating();
    const int64_t n = draw.Count();
    const int layout = draw.Layout();
    const uint64_t optional = draw(8);
    ValuesMaker maker(seed);
    constexpr Kind kKinds[] = {Kind::kNormal, Kind::kFinite, Kind::kBits, Kind::kHuge};
    const Kind kind = kKinds[draw(std::size(kKinds))];
    for (size_t i = 0; i < kUpdateTensors; ++i) {
      if (i >= kUpdateRequired && (optional >> (i - kUpdateRequired) & 1) == 0) continue;
      const DType own = i < 2 ? t : draw.Floating();
      values_[i] = Lay(own, maker.Make(own, kind, n), layout);
    }
    UpdateInput& in = host_.input;
    TensorView* const views[] = {&in.before,   &in.after,         &in.intended,
                                 &in.gradient, &in.moment_before, &in.moment_after};
    for (size_t i = 0; i < kUpdateTensors; ++i) *views[i] = values_[i].view;
    host_.optimizer = "adamw";
    host_.fields = {0.1, 0.99, 1e-8, 0.5, 0, static_cast<int32_t>(DType::kF32)};
  }
  UpdateCase(const UpdateCase&) = delete;
  UpdateCase& operator=(const UpdateCase&) = delete;
  const std::array<ValuesCase, kUpdateTensors>& values() const { return values_; }
  const UpdateCall& host() const { return host_; }
  UpdateCall device(int ordinal = 0) const {
    UpdateCall call = host_;
    UpdateInput& in = call.input;
    for (TensorView* v :
         {&in.before, &in.after, &in.intended, &in.gradient, &in.moment_before, &in.moment_after}) {
      if (v->present()) v->device = ordinal;
    }
    return call;
  }

 private:
  std::array<ValuesCase, kUpdateTensors> values_;
  UpdateCall host_;
};

inline MeasureOptions OptionsOf(uint32_t seed, bool sampled) {
  MeasureOptions options;
  options.sampled = sampled;
  options.key = seed * uint64_t{0x9e3779b97f4a7c15};
  // With this limit some rows are too long, and some draws are cut.
  if (seed % 5 == 4) options.sample_max_bytes = 700;
  return options;
}

}  // namespace plumbline::probes
