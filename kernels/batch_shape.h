// A batch as plain data: what a launch is told of it besides its memory.
#pragma once

#include <cstdint>

namespace plumbline {

// Staging and workspace of a launch are laid out alike: the items, then, 256-byte aligned, the
// results.
struct BatchShape {
  int32_t device = -1;  // CUDA ordinal; < 0: of the host, which no launch takes
  int32_t items = 0;    // tensors, updates or gathers
  int64_t work = 0;     // spans of all of them; of gathers, samples
  uint64_t item_bytes = 0;
  uint64_t result_bytes = 0;

  constexpr uint64_t results_at() const { return (item_bytes + 255) / 256 * 256; }
  constexpr uint64_t bytes() const { return results_at() + result_bytes; }
};

}  // namespace plumbline
