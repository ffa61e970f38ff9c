// A call as bytes: plain fields, texts, then tensors dense in C order. What an observation leaves
// in the ring on the trainer's thread, and what is read back on ours.
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

// Everything borrowed. Absent tensors are kept as absent; those on a device are described alone, as
// if they were on the host, and their memory is for others to fill (CarryTensors).
struct CallParts {
  std::span<const std::byte> fields;
  std::span<const std::string_view> texts;  // each below 4 GiB
  std::span<const TensorView> tensors;
};

size_t CallBytes(const CallParts& parts);
// `slot`: CallBytes(parts) bytes, aligned to 64; so are the tensors within.
void StoreCall(const CallParts& parts, std::byte* slot);

// Where in a slot the tensor's data begins.
uint64_t PlaceInSlot(const CallParts& parts, size_t tensor);

// What a device must copy for the slot of `parts` to be whole. False: a tensor of several axes lies
// so that no copy of two axes makes it dense.
bool CarryTensors(const CallParts& parts, std::vector<CarriedCopy>* copies);

// Reads a slot back, in the order and the numbers of parts that were stored. Views and texts point
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
