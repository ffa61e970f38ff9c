// Stages that have begun and not ended. A fixed number of slots, without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "agent/core/sites/site_table.h"

namespace plumbline::agent {

struct OpenSpan {
  Site* site = nullptr;  // the site's op is the span's name
  int32_t kind = 0;      // v1::Span::Kind
  int64_t step = 0;
  uint32_t thread = 0;  // the thread that began it
  uint64_t start_unix_ns = 0;
  uint64_t start_monotonic_ns = 0;
};

class SpanTable {
 public:
  static constexpr size_t kSlots = 1024;

  // Begins a stage and returns a number > 0, or 0 if kSlots stages are open. Thread-safe.
  uint64_t Begin(const OpenSpan& span);
  // Ends a stage and returns it in *span; returns false if the number is unknown or was ended
  // before. Thread-safe.
  bool End(uint64_t number, OpenSpan* span);
  // Returns true if a stage of that kind is open. Thread-safe.
  bool open(int32_t kind) const {
    const auto k = static_cast<size_t>(kind);
    return k < kKinds && open_[k].load(std::memory_order_relaxed) > 0;
  }
  // Returns the kind of the stage that ended last; 0: none. Thread-safe.
  int32_t last_ended() const { return last_ended_.load(std::memory_order_relaxed); }
  bool any_open() const { return any_open_but(-1); }
  bool any_open_but(int32_t kind) const {
    for (size_t k = 0; k < kKinds; ++k) {
      if (static_cast<int32_t>(k) != kind && open_[k].load(std::memory_order_relaxed) > 0)
        return true;
    }
    return false;
  }
  // Returns true if a stage of that kind has ever begun. Thread-safe.
  bool ever(int32_t kind) const {
    const auto k = static_cast<size_t>(kind);
    return k < kKinds && (begun_.load(std::memory_order_relaxed) >> k & 1) != 0;
  }

 private:
  // Turn of a slot: even: free; odd: open. A stage's number is turn * kSlots + slot.
  struct Slot {
    std::atomic<uint64_t> turn{0};
    OpenSpan span;
  };
  static constexpr uint64_t kBusy = ~uint64_t{0};  // being written or read
  std::array<Slot, kSlots> slots_;
  static constexpr size_t kKinds = 16;
  void Count(int32_t kind, int64_t n) {
    const auto k = static_cast<size_t>(kind);
    if (k >= kKinds) return;
    open_[k].fetch_add(n, std::memory_order_relaxed);
    if (n > 0) begun_.fetch_or(uint32_t{1} << k, std::memory_order_relaxed);
  }
  std::atomic<uint64_t> hint_{0};
  std::array<std::atomic<int64_t>, kKinds> open_{};  // by kind
  std::atomic<uint32_t> begun_{0};                   // one bit per kind
  std::atomic<int32_t> last_ended_{0};               // a kind
};

}  // namespace plumbline::agent
