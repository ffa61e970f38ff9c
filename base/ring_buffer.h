// A bounded ring of fixed-size slots between threads that must not wait and one that may.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

namespace plumbline {

// Lock-free, bounded, first in first out. Any number of producers, one consumer; nothing is
// allocated after construction. A full ring refuses: the caller counts the drop.
//
// Each slot carries a turn number (Vyukov's bounded queue): slot s is free for ticket t when its
// turn equals t, filled when it equals t + 1. A producer that is preempted between taking its
// ticket and publishing holds back later slots, never loses them.
template <typename T>
class RingBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "slots are plain data");

 public:
  // Holds `capacity` slots, rounded up to a power of two, at least 2.
  explicit RingBuffer(size_t capacity) {
    size_t n = 2;
    while (n < capacity) n *= 2;
    mask_ = n - 1;
    slots_ = std::make_unique<Slot[]>(n);
    for (size_t i = 0; i < n; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
  }
  RingBuffer(const RingBuffer&) = delete;
  RingBuffer& operator=(const RingBuffer&) = delete;

  // Copies `value` in; false when the ring is full. Any thread.
  bool TryPush(const T& value) {
    return TryPushWith([&](T* slot) { *slot = value; });
  }

  // The same, filling the slot in place: `fill(T*)` must not throw. Not called when full.
  template <typename Fill>
  bool TryPushWith(Fill fill) {
    uint64_t ticket = head_.load(std::memory_order_relaxed);
    for (;;) {
      Slot& slot = slots_[ticket & mask_];
      const uint64_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == ticket) {
        if (head_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed)) {
          fill(&slot.value);
          slot.turn.store(ticket + 1, std::memory_order_release);
          return true;
        }
      } else if (turn < ticket) {
        return false;  // the consumer has not freed it yet
      } else {
        ticket = head_.load(std::memory_order_relaxed);
      }
    }
  }

  // Copies the oldest slot out; false when none is ready. The consumer's thread only.
  bool TryPop(T* out) {
    return TryPopWith([&](const T& value) { *out = value; });
  }

  // The same, reading in place: the slot is free again when `use(const T&)` returns.
  template <typename Use>
  bool TryPopWith(Use use) {
    Slot& slot = slots_[tail_ & mask_];
    if (slot.turn.load(std::memory_order_acquire) != tail_ + 1) return false;
    use(static_cast<const T&>(slot.value));
    slot.turn.store(tail_ + mask_ + 1, std::memory_order_release);
    ++tail_;
    return true;
  }

  size_t capacity() const { return mask_ + 1; }

 private:
  static constexpr size_t kLine = 64;
  struct Slot {
    std::atomic<uint64_t> turn{0};
    T value;
  };

  std::unique_ptr<Slot[]> slots_;
  size_t mask_ = 0;
  alignas(kLine) std::atomic<uint64_t> head_{0};  // next ticket of a producer
  alignas(kLine) uint64_t tail_ = 0;              // next ticket of the consumer
};

}  // namespace plumbline
