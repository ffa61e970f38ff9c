// The requirements of every observed tensor before it is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/tensor_view.h"

namespace plumbline::probes {

enum class Content { kFloating, kInteger, kNumber };  // kInteger: without bool; kNumber: any
enum class Place {
  kHost,
  kAny
};  // kAny: on the host, or where a device can
    // measure the tensor

// Returns "bf16[3,4]".
std::string Describe(const TensorView& view);

// Returns InvalidArgument, "<name>: expected <what>, found <the view>".
absl::Status Expected(const char* name, const TensorView& view, const std::string& what);

// Checks a view; an absent one is correct. Returns Unavailable if it is on a device and must be on
// the host.
absl::Status CheckTensor(const char* name, const TensorView& view, Content content,
                         Place place = Place::kHost);
// Returns "<name>: expected on device 0 as <first>, found on the host" if the places differ.
absl::Status CheckSamePlace(const char* name, const TensorView& view, const char* first,
                            int device);

bool SameShape(const TensorView& a, const TensorView& b);

// Returns "role: expected at most 256 bytes" if the text is longer.
absl::Status CheckText(const char* name, std::string_view text);

// Returns the reason why a device's call was taken without its sample of this number of bytes.
std::string NoRoom(uint64_t bytes);

// Checks a declared element type: one of the floating ones, or kUnspecified.
absl::Status CheckDeclared(const char* name, int32_t dtype);

}  // namespace plumbline::probes
