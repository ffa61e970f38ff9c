#include "agent/core/sites/span_table.h"

namespace plumbline::agent {

uint64_t SpanTable::Begin(const OpenSpan& span) {
  const uint64_t start = hint_.load(std::memory_order_relaxed);
  for (uint64_t i = 0; i < kSlots; ++i) {
    const uint64_t index = (start + i) % kSlots;
    Slot& slot = slots_[index];
    uint64_t turn = slot.turn.load(std::memory_order_relaxed);
    if (turn % 2 != 0) continue;  // open, or busy (odd too)
    if (!slot.turn.compare_exchange_strong(turn, kBusy, std::memory_order_acquire)) continue;
    slot.span = span;
    slot.turn.store(turn + 1, std::memory_order_release);
    Count(span.kind, 1);
    return (turn + 1) * kSlots + index;
  }
  return 0;
}

bool SpanTable::End(uint64_t number, OpenSpan* span) {
  uint64_t turn = number / kSlots;
  if (turn % 2 == 0) return false;
  Slot& slot = slots_[number % kSlots];
  const uint64_t open = turn;
  if (!slot.turn.compare_exchange_strong(turn, kBusy, std::memory_order_acquire)) return false;
  *span = slot.span;
  slot.turn.store(open + 1, std::memory_order_release);
  // so that the next call finds it in the cache
  hint_.store(number % kSlots, std::memory_order_relaxed);
  Count(span->kind, -1);
  last_ended_.store(span->kind, std::memory_order_relaxed);
  return true;
}

}  // namespace plumbline::agent
