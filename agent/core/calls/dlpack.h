// DLPack tensors as views.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "plumbline/plumbline.h"

namespace plumbline::agent {

// `tensor` nullptr: an absent view. InvalidArgument begins with `name` and says what was expected:
// an unknown type, more than one lane, a bad rank or extent, a device that no probe can read.
// Pinned host memory counts as host; managed memory counts as device, since it is the stream's.
absl::Status ViewOf(const DLTensor* tensor, const char* name, TensorView* view);

}  // namespace plumbline::agent
