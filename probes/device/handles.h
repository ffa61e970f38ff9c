// Handles of the device, events or timers, taken and returned by number. Thread-safe, without a
// lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace plumbline::probes {

class Handles {
 public:
  explicit Handles(uint32_t count)
      : count_(count),
        handles_(std::make_unique<void*[]>(count)),
        taken_(std::make_unique<std::atomic<bool>[]>(count)) {}

  uint32_t count() const { return count_; }
  void*& at(uint32_t i) { return handles_[i]; }

  // Takes a handle; returns false if all are taken.
  bool Take(uint32_t* i) {
    for (uint32_t tries = 0; tries < count_; ++tries) {
      *i = next_.fetch_add(1, std::memory_order_relaxed) % count_;
      if (!taken_[*i].exchange(true, std::memory_order_acquire)) return true;
    }
    return false;
  }
  void Give(uint32_t i) { taken_[i].store(false, std::memory_order_release); }

 private:
  const uint32_t count_;
  std::unique_ptr<void*[]> handles_;
  std::unique_ptr<std::atomic<bool>[]> taken_;
  std::atomic<uint32_t> next_{0};
};

}  // namespace plumbline::probes
