#include "agent/interpose/values.h"

#include <atomic>

namespace plumbline::interpose {
namespace {

constexpr uint32_t kSets = 512, kWays = 4;

struct Value {
  std::atomic<uint64_t> pointer;
  std::atomic<uint32_t> value;
};
struct Set {
  Value ways[kWays];
  std::atomic<uint32_t> turn;
};
Set sets[kSets];

Set& SetOf(uint64_t pointer) {
  return sets[((pointer >> 4) * 0x9e37'79b9'7f4a'7c15u >> 40) % kSets];
}

}  // namespace

void SetValue(uint64_t pointer, uint32_t value) {
  if (pointer == 0) return;
  Set& set = SetOf(pointer);
  for (Value& way : set.ways) {
    if (way.pointer.load(std::memory_order_acquire) != pointer) continue;
    way.value.store(value, std::memory_order_release);
    return;
  }
  for (Value& way : set.ways) {
    uint64_t free = 0;
    if (!way.pointer.compare_exchange_strong(free, pointer)) continue;
    way.value.store(value, std::memory_order_release);
    return;
  }
  Value& oldest = set.ways[set.turn.fetch_add(1, std::memory_order_relaxed) % kWays];
  oldest.value.store(value, std::memory_order_release);
  oldest.pointer.store(pointer, std::memory_order_release);
}

uint32_t ValueOf(uint64_t pointer) {
  if (pointer == 0) return kNoValue;
  for (const Value& way : SetOf(pointer).ways)
    if (way.pointer.load(std::memory_order_acquire) == pointer)
      return way.value.load(std::memory_order_acquire);
  return kNoValue;
}

void ForgetValue(uint64_t pointer) {
  if (pointer == 0) return;
  for (Value& way : SetOf(pointer).ways) {
    if (way.pointer.load(std::memory_order_acquire) != pointer) continue;
    way.value.store(kNoValue, std::memory_order_release);
    way.pointer.store(0, std::memory_order_release);
  }
}

}  // namespace plumbline::interpose
