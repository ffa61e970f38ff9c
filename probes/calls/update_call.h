// One update in place, as the trainer declared it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/update/input.h"

namespace plumbline::probes {

// As in plumbline_update_t; views and texts are borrowed.
struct UpdateCall {
  UpdateInput input;
  TensorView offsets;  // absent: whole tensors
  std::string_view optimizer;
  struct Fields {
    double lr = 0;
    double beta2 = 0;
    double eps = 0;
    double decay = 0;
    uint64_t count = 0;
    int32_t eps_dtype = 0;  // DType
  } fields;
};

// The call's tensors in a fixed order: before, after, intended (required), gradient, moment_before,
// moment_after.
inline constexpr size_t kUpdateTensors = 6;
inline constexpr size_t kUpdateRequired = 3;
inline std::array<TensorView, kUpdateTensors> Tensors(const UpdateInput& in) {
  return {in.before, in.after, in.intended, in.gradient, in.moment_before, in.moment_after};
}

}  // namespace plumbline::probes
