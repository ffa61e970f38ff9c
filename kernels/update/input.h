// The tensors of one in-place update.
#pragma once

#include "base/tensor_view.h"

namespace plumbline {

// Tensors of one shape. The last three may be absent.
struct UpdateInput {
  TensorView before;
  TensorView after;
  TensorView intended;
  TensorView gradient;
  TensorView moment_before;  // second moment
  TensorView moment_after;
};

}  // namespace plumbline
