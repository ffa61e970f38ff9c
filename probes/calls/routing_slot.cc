// One router call as bytes: a fixed head, the two texts, then each tensor dense in C order.
#include <cstring>
#include <new>
#include <type_traits>

#include "probes/calls/routing_call.h"

namespace plumbline::probes {
namespace {

constexpr size_t kTensorAlign = 64;

constexpr const char* kNames[kRoutingTensors] = {
    "scores",      "expert_bias", "topk_indices", "keep_mask", "routing_map", "probs",
    "sequence_id", "position",    "padding_mask", "pool_id",   "region"};

struct SlotTensor {
  DType dtype;
  uint8_t rank;
  int64_t shape[2];
  uint64_t offset;  // from the slot's begin; 0: left out
};

struct SlotHead {
  SlotTensor tensors[kRoutingTensors];
  uint64_t capacity;
  int32_t capacity_kind, capacity_source, pool, flatten, bias_captured;
  int32_t top_k, groups, top_groups;
  uint8_t scores_are_logits, score_function, group_score;
  uint32_t randomness_size, mode_size, policy_size;
};
static_assert(std::is_trivially_copyable_v<SlotHead>);

constexpr size_t AlignedForTensor(size_t n) { return (n + kTensorAlign - 1) & ~(kTensorAlign - 1); }

size_t DenseBytes(const TensorView& v) {
  return static_cast<size_t>(v.elements()) * DTypeSize(v.dtype);
}

// Packs `n` elements of `size` bytes that are `stride` elements apart.
template <typename T>
void Gather(const std::byte* from, int64_t stride, int64_t n, std::byte* to) {
  // Uses memcpy: a trainer's view may start at any byte.
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * kSize, from + i * stride * kSize, sizeof(T));
}

void CopyRow(const std::byte* from, int64_t stride, int64_t n, size_t size, std::byte* to) {
  if (stride == 1 || n == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * size);
    return;
  }
  switch (size) {
    case 8:
      return Gather<uint64_t>(from, stride, n, to);
    case 4:
      return Gather<uint32_t>(from, stride, n, to);
    case 2:
      return Gather<uint16_t>(from, stride, n, to);
    default:
      return Gather<uint8_t>(from, stride, n, to);
  }
}

// Copies views of rank 1 and 2; a router call has no others.
void CopyDense(const TensorView& v, std::byte* to) {
  const size_t bytes = DenseBytes(v);
  if (bytes == 0) return;
  const auto* from = static_cast<const std::byte*>(v.data);
  if (v.contiguous()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t size = DTypeSize(v.dtype);
  if (v.rank == 1) return CopyRow(from, v.stride[0], v.shape[0], size, to);
  const auto row_bytes = static_cast<size_t>(v.shape[1]) * size;
  for (int64_t i = 0; i < v.shape[0]; ++i) {
    const auto* row = from + i * v.stride[0] * static_cast<int64_t>(size);
    CopyRow(row, v.stride[1], v.shape[1], size, to + static_cast<size_t>(i) * row_bytes);
  }
}

SlotHead HeadOf(const RoutingCall& call) {
  const RoutingInput& in = call.input;
  SlotHead head{};
  head.capacity = call.capacity;
  head.capacity_kind = call.capacity_kind;
  head.capacity_source = call.capacity_source;
  head.pool = call.pool;
  head.flatten = call.flatten;
  head.bias_captured = call.bias_captured;
  head.top_k = in.top_k;
  head.groups = in.groups;
  head.top_groups = in.top_groups;
  head.scores_are_logits = in.scores_are_logits;
  head.score_function = static_cast<uint8_t>(in.score_function);
  head.group_score = static_cast<uint8_t>(in.group_score);
  head.randomness_size = static_cast<uint32_t>(call.randomness.size());
  head.mode_size = static_cast<uint32_t>(call.mode.size());
  head.policy_size = static_cast<uint32_t>(call.policy.size());
  return head;
}

TensorView ViewOf(const SlotTensor& t, const std::byte* slot) {
  if (t.dtype == DType::kUnspecified) return {};
  const void* data = t.offset == 0 ? nullptr : slot + t.offset;
  return t.rank == 1 ? TensorView::Dense(data, t.dtype, t.shape[0])
                     : TensorView::Dense(data, t.dtype, t.shape[0], t.shape[1]);
}

}  // namespace

std::array<const TensorView*, kRoutingTensors> Tensors(const RoutingInput& in) {
  return {&in.scores,       &in.expert_bias, &in.topk_indices, &in.keep_mask,
          &in.routing_map,  &in.probs,       &in.sequence_id,  &in.position,
          &in.padding_mask, &in.pool_id,     &in.region};
}

std::array<TensorView*, kRoutingTensors> Tensors(RoutingInput& in) {
  return {&in.scores,       &in.expert_bias, &in.topk_indices, &in.keep_mask,
          &in.routing_map,  &in.probs,       &in.sequence_id,  &in.position,
          &in.padding_mask, &in.pool_id,     &in.region};
}

const char* TensorName(size_t index) { return index < kRoutingTensors ? kNames[index] : "?"; }

uint64_t SampleBytes(const RoutingCall& call) {
  uint64_t bytes = 0;
  for (const TensorView* v : Tensors(call.input)) {
    if (v->present()) bytes += DenseBytes(*v);
  }
  return bytes;
}

size_t SlotHeadBytes(const RoutingCall& call) {
  return AlignedForTensor(sizeof(SlotHead) + call.randomness.size() + call.mode.size() +
                          call.policy.size());
}

size_t SlotBytes(const RoutingCall& call) {
  size_t bytes = SlotHeadBytes(call);
  for (const TensorView* v : Tensors(call.input)) {
    if (v->present()) bytes += AlignedForTensor(DenseBytes(*v));
  }
  return bytes;
}

SlotOffsets StoreRoutingHead(const RoutingCall& call, SlotRows rows, std::byte* slot) {
  SlotHead head = HeadOf(call);
  size_t offset = sizeof(SlotHead);
  for (const std::string_view text : {call.randomness, call.mode, call.policy}) {
    if (!text.empty()) std::memcpy(slot + offset, text.data(), text.size());
    offset += text.size();
  }
  offset = AlignedForTensor(offset);
  SlotOffsets offsets{};
  const auto tensors = Tensors(call.input);
  for (size_t i = 0; i < kRoutingTensors; ++i) {
    const TensorView& v = *tensors[i];
    if (!v.present()) continue;
    offsets[i] = rows == SlotRows::kToFollow ? offset : 0;
    head.tensors[i] = {v.dtype, static_cast<uint8_t>(v.rank), {v.shape[0], v.shape[1]}, offsets[i]};
    offset += AlignedForTensor(DenseBytes(v));
  }
  std::memcpy(slot, &head, sizeof(head));
  return offsets;
}

void StoreRoutingCall(const RoutingCall& call, std::byte* slot) {
  const SlotOffsets offsets = StoreRoutingHead(call, SlotRows::kToFollow, slot);
  const auto tensors = Tensors(call.input);
  for (size_t i = 0; i < kRoutingTensors; ++i) {
    if (tensors[i]->present()) CopyDense(*tensors[i], slot + offsets[i]);
  }
}

RoutingCall LoadRoutingCall(const std::byte* slot) {
  SlotHead head;
  std::memcpy(&head, slot, sizeof(head));
  RoutingCall call;
  call.capacity = head.capacity;
  call.capacity_kind = head.capacity_kind;
  call.capacity_source = head.capacity_source;
  call.pool = head.pool;
  call.flatten = head.flatten;
  call.bias_captured = head.bias_captured;
  call.input.top_k = head.top_k;
  call.input.groups = head.groups;
  call.input.top_groups = head.top_groups;
  call.input.scores_are_logits = head.scores_are_logits != 0;
  call.input.score_function = static_cast<ScoreFunction>(head.score_function);
  call.input.group_score = static_cast<GroupScore>(head.group_score);
  const auto* texts = reinterpret_cast<const char*>(slot + sizeof(SlotHead));
  call.randomness = {texts, head.randomness_size};
  call.mode = {texts + head.randomness_size, head.mode_size};
  call.policy = {texts + head.randomness_size + head.mode_size, head.policy_size};
  const auto tensors = Tensors(call.input);
  for (size_t i = 0; i < kRoutingTensors; ++i) *tensors[i] = ViewOf(head.tensors[i], slot);
  return call;
}

}  // namespace plumbline::probes
