// Converts DLPack tensors to views.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "plumbline/plumbline.h"

namespace plumbline::agent {

// Sets *view to `tensor`; nullptr gives an absent view. Returns InvalidArgument, beginning with
// `name` and stating what was expected, for an unknown type, more than one lane, a bad rank or
// extent, or a device that no probe can read. Pinned host memory counts as host. Managed memory
// counts as device, since it belongs to the stream.
absl::Status ViewOf(const DLTensor* tensor, const char* name, TensorView* view);

}  // namespace plumbline::agent
