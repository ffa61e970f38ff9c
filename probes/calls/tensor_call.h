// One tensor at one moment, as the trainer declared it.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/tensor_view.h"

namespace plumbline::probes {

// As in plumbline_tensor_t; views and texts are borrowed.
struct TensorCall {
  TensorView values;
  int32_t target_format = 0;  // DType
  std::string_view role;
  std::string_view replicas;
};

}  // namespace plumbline::probes
