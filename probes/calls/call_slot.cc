#include "probes/calls/call_slot.h"

#include <cstdint>

#include "kernels/evidence/tensor.h"

namespace plumbline::probes {
namespace {

constexpr size_t kAlign = 64;

struct SlotHead {
  uint32_t fields;   // bytes
  uint32_t texts;    // number of texts
  uint32_t tensors;  // number of tensors
  uint32_t tensors_at;
  uint32_t texts_at;
};

struct SlotTensor {
  TensorView view;  // dense; data is set when it is read
  uint64_t offset;  // from the slot's begin
};
static_assert(std::is_trivially_copyable_v<SlotTensor>);

constexpr size_t Aligned(size_t n, size_t to) { return (n + to - 1) / to * to; }

// The plain part: head, fields, descriptions of tensors, and texts, each after its length.
struct Layout {
  explicit Layout(const CallParts& parts) {
    tensors_at = Aligned(sizeof(SlotHead) + parts.fields.size(), alignof(SlotTensor));
    texts_at = tensors_at + parts.tensors.size() * sizeof(SlotTensor);
    data_at = texts_at;
    for (const std::string_view text : parts.texts) data_at += sizeof(uint32_t) + text.size();
    data_at = Aligned(data_at, kAlign);
  }
  size_t tensors_at, texts_at, data_at;
};

TensorView Dense(const TensorView& v) {
  TensorView dense = v;
  dense.data = nullptr;
  dense.device = -1;
  int64_t step = 1;
  for (int i = v.rank - 1; i >= 0; --i) {
    const auto a = static_cast<size_t>(i);
    dense.stride[a] = step;
    step *= v.shape[a];
  }
  return dense;
}

}  // namespace

size_t CallBytes(const CallParts& parts) {
  size_t bytes = Layout(parts).data_at;
  for (const TensorView& v : parts.tensors) bytes += Aligned(PackedBytes(v), kAlign);
  return bytes;
}

void StoreCall(const CallParts& parts, std::byte* slot) {
  const Layout layout(parts);
  const SlotHead head = {
      static_cast<uint32_t>(parts.fields.size()), static_cast<uint32_t>(parts.texts.size()),
      static_cast<uint32_t>(parts.tensors.size()), static_cast<uint32_t>(layout.tensors_at),
      static_cast<uint32_t>(layout.texts_at)};
  std::memcpy(slot, &head, sizeof(head));
  if (!parts.fields.empty()) {
    std::memcpy(slot + sizeof(head), parts.fields.data(), parts.fields.size());
  }
  std::byte* text_at = slot + layout.texts_at;
  for (const std::string_view text : parts.texts) {
    const auto size = static_cast<uint32_t>(text.size());
    std::memcpy(text_at, &size, sizeof(size));
    if (size != 0) std::memcpy(text_at + sizeof(size), text.data(), size);
    text_at += sizeof(size) + size;
  }
  size_t data_at = layout.data_at;
  std::byte* description = slot + layout.tensors_at;
  for (const TensorView& v : parts.tensors) {
    const SlotTensor stored = {Dense(v), data_at};
    std::memcpy(description, &stored, sizeof(stored));
    description += sizeof(stored);
    if (!v.present()) continue;
    if (v.on_host()) CopyDense(v, slot + data_at);
    data_at += Aligned(PackedBytes(v), kAlign);
  }
}

uint64_t PlaceInSlot(const CallParts& parts, size_t tensor) {
  uint64_t at = Layout(parts).data_at;
  for (size_t i = 0; i < tensor; ++i) at += Aligned(PackedBytes(parts.tensors[i]), kAlign);
  return at;
}

bool CarryTensors(const CallParts& parts, std::vector<CarriedCopy>* copies) {
  for (size_t i = 0; i < parts.tensors.size(); ++i) {
    TensorView v = parts.tensors[i];
    if (!v.present() || v.on_host() || v.elements() == 0) continue;
    if (v.rank == 0 || v.rank > 2) {
      if (v.rank > 2 && !v.contiguous()) return false;
      const int device = v.device;
      v = TensorView::Dense(v.data, v.dtype, v.elements());
      v.device = device;
    }
    copies->push_back({v, PlaceInSlot(parts, i)});
  }
  return true;
}

CallReader::CallReader(const std::byte* slot) : slot_(slot), fields_(slot + sizeof(SlotHead)) {
  SlotHead head;
  std::memcpy(&head, slot, sizeof(head));
  next_tensor_ = slot + head.tensors_at;
  next_text_ = slot + head.texts_at;
}

std::string_view CallReader::NextText() {
  uint32_t size;
  std::memcpy(&size, next_text_, sizeof(size));
  const auto* text = reinterpret_cast<const char*>(next_text_ + sizeof(size));
  next_text_ += sizeof(size) + size;
  return {text, size};
}

TensorView CallReader::NextTensor() {
  SlotTensor stored;
  std::memcpy(&stored, next_tensor_, sizeof(stored));
  next_tensor_ += sizeof(stored);
  if (stored.view.present()) stored.view.data = slot_ + stored.offset;
  return stored.view;
}

}  // namespace plumbline::probes
