// A call as bytes: plain fields, texts, then tensors dense in C order. What an observation leaves
// in the ring on the trainer's thread, and what is read back on ours.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/tensor_view.h"

namespace plumbline::probes {

// Everything borrowed. Tensors are on the host; absent ones are kept as absent.
struct CallParts {
  std::span<const std::byte> fields;
  std::span<const std::string_view> texts;  // each below 4 GiB
  std::span<const TensorView> tensors;
};

size_t CallBytes(const CallParts& parts);
// `slot`: CallBytes(parts) bytes, aligned to 64; so are the tensors within.
void StoreCall(const CallParts& parts, std::byte* slot);

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
