// Checks shapes, types and places of a router call before it is copied.
#include <string>

#include "probes/routing_probe.h"

namespace plumbline::probes {
namespace {

enum class InputContent { kFloating, kInteger, kMask };
constexpr InputContent kContents[kRoutingTensors] = {
    InputContent::kFloating, InputContent::kFloating, InputContent::kInteger,
    InputContent::kMask,     InputContent::kMask,     InputContent::kFloating,
    InputContent::kInteger,  InputContent::kInteger,  InputContent::kMask,
    InputContent::kInteger,  InputContent::kMask};

constexpr size_t kMaxText = 256;

std::string DescribeInput(const TensorView& v) {
  std::string text = std::string(DTypeName(v.dtype)) + "[";
  for (int i = 0; i < v.rank; ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(v.shape[static_cast<size_t>(i)]);
  }
  return text + "]";
}

absl::Status ExpectedInput(size_t index, const TensorView& v, const std::string& what) {
  return absl::InvalidArgumentError(std::string(TensorName(index)) + ": expected " + what +
                                    ", found " + DescribeInput(v));
}

bool DTypeFits(InputContent content, DType t) {
  switch (content) {
    case InputContent::kFloating:
      return t == DType::kF64 || t == DType::kF32 || t == DType::kF16 || t == DType::kBF16;
    case InputContent::kInteger:
      return IsInteger(t) && t != DType::kBool;
    case InputContent::kMask:
      return t == DType::kBool || t == DType::kU8;
  }
  return false;
}

const char* ContentName(InputContent content) {
  switch (content) {
    case InputContent::kFloating:
      return "f64, f32, f16 or bf16";
    case InputContent::kInteger:
      return "an integer type";
    case InputContent::kMask:
      return "bool or u8";
  }
  return "?";
}

bool HasShape(const TensorView& v, int64_t rows) { return v.rank == 1 && v.shape[0] == rows; }
bool HasShape(const TensorView& v, int64_t rows, int64_t columns) {
  return v.rank == 2 && v.shape[0] == rows && v.shape[1] == columns;
}

std::string Shape(int64_t rows) { return "[" + std::to_string(rows) + "]"; }
std::string Shape(int64_t rows, int64_t columns) {
  return "[" + std::to_string(rows) + "," + std::to_string(columns) + "]";
}

absl::Status CheckExtents(const RoutingInput& in, int64_t tokens, int64_t experts) {
  const int64_t k = in.top_k;
  if (in.expert_bias.present() && !HasShape(in.expert_bias, experts)) {
    return ExpectedInput(1, in.expert_bias, Shape(experts));
  }
  const auto tensors = Tensors(in);
  for (const size_t i : {size_t{2}, size_t{3}}) {
    if (tensors[i]->present() && !HasShape(*tensors[i], tokens, k)) {
      return ExpectedInput(i, *tensors[i], Shape(tokens, k));
    }
  }
  if (in.routing_map.present() && !HasShape(in.routing_map, tokens, experts)) {
    return ExpectedInput(4, in.routing_map, Shape(tokens, experts));
  }
  if (in.probs.present() && !HasShape(in.probs, tokens, experts) &&
      !HasShape(in.probs, tokens, k)) {
    return ExpectedInput(5, in.probs, Shape(tokens, experts) + " or " + Shape(tokens, k));
  }
  for (size_t i = 6; i < kRoutingTensors; ++i) {
    if (tensors[i]->present() && !HasShape(*tensors[i], tokens)) {
      return ExpectedInput(i, *tensors[i], Shape(tokens));
    }
  }
  return absl::OkStatus();
}

// Refuses a tensor that is on another device than the scores, or that its device could not read.
absl::Status CheckPlace(size_t index, const TensorView& v, int device) {
  if (v.device != device) {
    const auto place = [](int d) {
      return d < 0 ? std::string("the host") : "device " + std::to_string(d);
    };
    return absl::InvalidArgumentError(std::string(TensorName(index)) + ": expected on " +
                                      place(device) + " as the scores, found on " +
                                      place(v.device));
  }
  if (device >= 0 && reinterpret_cast<uintptr_t>(v.data) % DTypeSize(v.dtype) != 0) {
    return ExpectedInput(index, v, "an address that is a multiple of the element's size");
  }
  return absl::OkStatus();
}

absl::Status CheckTypes(const RoutingInput& in) {
  const auto tensors = Tensors(in);
  for (size_t i = 0; i < kRoutingTensors; ++i) {
    const TensorView& v = *tensors[i];
    if (!v.present()) continue;
    if (!DTypeFits(kContents[i], v.dtype)) return ExpectedInput(i, v, ContentName(kContents[i]));
    if (absl::Status s = CheckPlace(i, v, in.scores.device); !s.ok()) return s;
    if (v.data == nullptr && v.elements() != 0)
      return ExpectedInput(i, v, "data, not a null pointer");
  }
  return absl::OkStatus();
}

absl::Status OutOfRange(const char* what, int64_t value, const std::string& expected) {
  return absl::InvalidArgumentError(std::string(what) + " = " + std::to_string(value) +
                                    ": expected " + expected);
}

absl::Status CheckConfiguration(const RoutingCall& call, int64_t experts) {
  const RoutingInput& in = call.input;
  if (in.top_k < 1 || in.top_k > kMaxTopK || in.top_k > experts) {
    return OutOfRange("top_k", in.top_k,
                      "1 to " + std::to_string(kMaxTopK) + ", at most the number of experts (" +
                          std::to_string(experts) + ")");
  }
  if (in.groups < 0 || (in.groups > 1 && experts % in.groups != 0)) {
    return OutOfRange("groups", in.groups,
                      "a divisor of the number of experts (" + std::to_string(experts) + ")");
  }
  if (in.groups > 1 && (in.top_groups < 1 || in.top_groups > in.groups)) {
    return OutOfRange("top_groups", in.top_groups, "1 to " + std::to_string(in.groups));
  }
  if (static_cast<int>(in.score_function) > 2) {
    return OutOfRange("score_function", static_cast<int>(in.score_function), "0 to 2");
  }
  if (static_cast<int>(in.group_score) > 2) {
    return OutOfRange("group_score", static_cast<int>(in.group_score), "0 to 2");
  }
  if (!v1::RoutingConfig::CapacityKind_IsValid(call.capacity_kind)) {
    return OutOfRange("capacity_kind", call.capacity_kind, "0 to 2");
  }
  if (!v1::RoutingConfig::CapacitySource_IsValid(call.capacity_source)) {
    return OutOfRange("capacity_source", call.capacity_source, "0 to 2");
  }
  if (!v1::RoutingConfig::Pool_IsValid(call.pool)) return OutOfRange("pool", call.pool, "0 to 5");
  if (!v1::RoutingConfig::Flatten_IsValid(call.flatten)) {
    return OutOfRange("flatten", call.flatten, "0 to 2");
  }
  if (!v1::RoutingConfig::BiasCaptured_IsValid(call.bias_captured)) {
    return OutOfRange("bias_captured", call.bias_captured, "0 to 2");
  }
  if (call.randomness.size() > kMaxText || call.mode.size() > kMaxText ||
      call.policy.size() > kMaxText) {
    return absl::InvalidArgumentError("randomness, mode and policy: expected at most 256 bytes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRoutingCall(const RoutingCall& call) {
  const TensorView& scores = call.input.scores;
  if (!scores.present()) return absl::InvalidArgumentError("scores: required, absent");
  if (scores.rank != 2 || scores.shape[0] < 1 || scores.shape[0] > kMaxTokens ||
      scores.shape[1] < 1 || scores.shape[1] > kMaxExperts) {
    return ExpectedInput(0, scores,
                         "[T,E] with T from 1 to " + std::to_string(kMaxTokens) +
                             " and E from 1 to " + std::to_string(kMaxExperts));
  }
  if (absl::Status s = CheckConfiguration(call, scores.shape[1]); !s.ok()) return s;
  if (absl::Status s = CheckExtents(call.input, scores.shape[0], scores.shape[1]); !s.ok()) {
    return s;
  }
  return CheckTypes(call.input);
}

}  // namespace plumbline::probes
