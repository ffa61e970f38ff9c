// Options that all probes share: the elements that a site keeps at a step, and their limits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tensor_view.h"

namespace plumbline::probes {

// Elements that one call keeps, by kind. Proofs and biases are built from a reduction's elements,
// and its sites are few; there are hundreds of tensors and updates.
inline constexpr uint32_t kReductionSamples = 1024;
inline constexpr uint32_t kTensorSamples = 256;
inline constexpr uint32_t kUpdateSamples = 256;

// A tensor larger than this is measured in place instead of copied first: bench/agent.
inline constexpr uint64_t kCopyBytes = uint64_t{1} << 20;

// Limit of a text that a call declares.
inline constexpr size_t kMaxTextBytes = 256;

struct MeasureOptions {
  bool sampled = false;  // the step keeps elements
  uint64_t key = 0;      // SampleKey of run, step and site
  uint64_t sample_max_bytes = uint64_t{8} << 20;
};

inline uint64_t Elements(const TensorView& v) { return static_cast<uint64_t>(v.elements()); }

}  // namespace plumbline::probes
