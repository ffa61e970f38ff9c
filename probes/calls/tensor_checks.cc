#include "probes/calls/tensor_checks.h"

#include <cstdint>
#include <string_view>

#include "probes/calls/measure.h"

namespace plumbline::probes {
namespace {

bool Fits(Content content, DType t) {
  switch (content) {
    case Content::kFloating:
      return IsFloating(t);
    case Content::kInteger:
      return IsInteger(t) && t != DType::kBool;
    case Content::kNumber:
      return IsFloating(t) || IsInteger(t);
  }
  return false;
}

const char* NameOf(Content content) {
  switch (content) {
    case Content::kFloating:
      return "a floating type";
    case Content::kInteger:
      return "an integer type";
    case Content::kNumber:
      return "a floating, integer or bool type";
  }
  return "?";
}

}  // namespace

std::string Describe(const TensorView& view) {
  std::string text = view.present() ? DTypeName(view.dtype) : "none";
  if (!view.present()) return text;
  text += '[';
  for (int i = 0; i < view.rank; ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(view.shape[static_cast<size_t>(i)]);
  }
  return text + ']';
}

absl::Status Expected(const char* name, const TensorView& view, const std::string& what) {
  return absl::InvalidArgumentError(std::string(name) + ": expected " + what + ", found " +
                                    Describe(view));
}

absl::Status CheckTensor(const char* name, const TensorView& view, Content content, Place place) {
  if (!view.present()) return absl::OkStatus();
  if (!Fits(content, view.dtype)) return Expected(name, view, NameOf(content));
  if (!view.on_host() && place == Place::kHost) {
    return absl::UnavailableError(std::string(name) +
                                  " is on a device: only host tensors are read");
  }
  // Such an address would cause a fault of the device, which would also stop the trainer's work.
  if (!view.on_host() && reinterpret_cast<uintptr_t>(view.data) % DTypeSize(view.dtype) != 0) {
    return Expected(name, view, "an address that is a multiple of the element's size");
  }
  if (view.data == nullptr && view.elements() != 0) {
    return Expected(name, view, "data, not a null pointer");
  }
  return absl::OkStatus();
}

absl::Status CheckSamePlace(const char* name, const TensorView& view, const char* first,
                            int device) {
  if (view.device == device) return absl::OkStatus();
  const auto place = [](int d) {
    return d < 0 ? std::string("the host") : "device " + std::to_string(d);
  };
  return absl::InvalidArgumentError(std::string(name) + ": expected on " + place(device) + " as " +
                                    first + ", found on " + place(view.device));
}

bool SameShape(const TensorView& a, const TensorView& b) {
  if (a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i) {
    const auto axis = static_cast<size_t>(i);
    if (a.shape[axis] != b.shape[axis]) return false;
  }
  return true;
}

absl::Status CheckText(const char* name, std::string_view text) {
  if (text.size() <= kMaxTextBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(std::string(name) + ": expected at most " +
                                    std::to_string(kMaxTextBytes) + " bytes");
}

std::string NoRoom(uint64_t bytes) {
  return "the device's ring had no room for a sample of " + std::to_string(bytes) + " bytes";
}

absl::Status CheckDeclared(const char* name, int32_t dtype) {
  if (dtype >= 0 && dtype <= static_cast<int32_t>(DType::kE5M2)) return absl::OkStatus();
  return absl::InvalidArgumentError(std::string(name) + " = " + std::to_string(dtype) +
                                    ": expected one of PLUMBLINE_DTYPE_*");
}

}  // namespace plumbline::probes
