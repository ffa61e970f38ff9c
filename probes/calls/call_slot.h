// A call as bytes: plain fields, texts, then tensors dense in C order. An observation writes it
// into the ring on the trainer's thread, and our thread reads it back.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/tensor_view.h"
#include "probes/calls/carried.h"

namespace plumbline::probes {

// All members are borrowed. Absent tensors stay absent. Device tensors are only described, as if
// they were on the host; other code fills their memory (CarryTensors).
struct CallParts {
  std::span<const std::byte> fields;
  std::span<const std::string_view> texts;  // each below 4 GiB
  std::span<const TensorView> tensors;
};

size_t CallBytes(const CallParts& parts);
// Writes the call to `slot`: CallBytes(parts) bytes, aligned to 64; so are the tensors within.
void StoreCall(const CallParts& parts, std::byte* slot);

// Returns the offset in a slot at which the tensor's data begin.
uint64_t PlaceInSlot(const CallParts& parts, size_t tensor);

// Returns the copies that a device must make to complete the slot of `parts`. Returns false if a
// tensor of several axes cannot be made dense by copies of two axes.
bool CarryTensors(const CallParts& parts, std::vector<CarriedCopy>* copies);

// Reads a slot back, in the order and with the numbers of the stored parts. Views and texts point
// into it.
class CallReader {
 public:
  explicit CallReader(const std::byte* slot);

  template <typename Fields>
  Fields fields() const {
    static_assert(std::is_trivially_copyable_v<Fields>);
    Fields out;
    std::memcpy(&out, fields_, sizeof(out));
    return out;
  }
  std::string_view NextText();
  TensorView NextTensor();

 private:
  const std::byte* slot_;
  const std::byte* fields_;
  const std::byte* next_text_;
  const std::byte* next_tensor_;
};

}  // namespace plumbline::probes
