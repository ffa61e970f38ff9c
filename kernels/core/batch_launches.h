// Passes a batch's items as arguments of its launches, so that nothing is copied to the device
// before. If a batch has more items than the arguments can hold, it is divided into several
// launches, each complete.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "kernels/core/batch_shape.h"

namespace plumbline {

// The size of all arguments of a launch that every driver and architecture accepts. (CUDA 12.1
// takes 32,764 bytes from sm_70 on; a call of the agent has one item, and each launch copies its
// arguments.)
inline constexpr size_t kArgumentBytes = 4096;

// Not initialised: most launches have one item.
template <typename Item, int kMost>
struct ItemArguments {
  alignas(Item) unsigned char memory[kMost * sizeof(Item)];
  int32_t count;
  int64_t spans;
  uint64_t result_bytes;

  PLUMB_HD const Item* items() const { return reinterpret_cast<const Item*>(memory); }
};

// Writes the items from `first` on as if there were no others: counts spans and results from the
// first item. Returns the number of items. `*span`, `*result`: on entry the place where they begin;
// on return the place where the next ones begin.
template <typename Item, int kMost>
int PutArguments(const BatchShape& batch, const void* items, int first, int64_t* span,
                 uint64_t* result, ItemArguments<Item, kMost>* out) {
  const auto* from = static_cast<const unsigned char*>(items);
  const auto at = [&](int i) {
    Item item;
    std::memcpy(static_cast<void*>(&item), from + static_cast<size_t>(i) * sizeof(Item),
                sizeof(Item));
    return item;
  };
  const int count = std::min(kMost, batch.items - first);
  for (int i = 0; i < count; ++i) {
    Item item = at(first + i);
    item.first_span -= *span;
    item.result -= *result;
    std::memcpy(out->memory + static_cast<size_t>(i) * sizeof(Item), &item, sizeof(Item));
  }
  const bool more = first + count < batch.items;
  const int64_t spans_end = more ? at(first + count).first_span : batch.work;
  const uint64_t results_end = more ? at(first + count).result : batch.result_bytes;
  out->count = count;
  out->spans = spans_end - *span;
  out->result_bytes = results_end - *result;
  *span = spans_end;
  *result = results_end;
  return count;
}

// Calls run(arguments, first_span, result) for each launch, with the position of its spans and
// results among all. If it returns a value other than 0, stops and returns that.
template <typename Item, int kMost, typename Run>
int ForEachLaunch(const BatchShape& batch, const void* items, Run run) {
  int64_t next_span = 0;
  uint64_t next_result = 0;
  for (int first = 0; first < batch.items;) {
    ItemArguments<Item, kMost> arguments;
    const int64_t span = next_span;
    const uint64_t result = next_result;
    first += PutArguments(batch, items, first, &next_span, &next_result, &arguments);
    if (const int code = run(arguments, span, result); code != 0) return code;
  }
  return 0;
}

}  // namespace plumbline
