// What every observed tensor must be before it is read.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/tensor_view.h"

namespace plumbline::probes {

enum class Content { kFloating, kInteger, kNumber };  // kInteger: without bool; kNumber: any

// "bf16[3,4]".
std::string Describe(const TensorView& view);

// InvalidArgument, "<name>: expected <what>, found <the view>".
absl::Status Expected(const char* name, const TensorView& view, const std::string& what);

// An absent view is fine. Unavailable: it lives on a device and no device kernels are loaded.
absl::Status CheckTensor(const char* name, const TensorView& view, Content content);

bool SameShape(const TensorView& a, const TensorView& b);

// "role: expected at most 256 bytes".
absl::Status CheckText(const char* name, std::string_view text);

// A declared element type: one of the floating ones, or kUnspecified.
absl::Status CheckDeclared(const char* name, int32_t dtype);

}  // namespace plumbline::probes
