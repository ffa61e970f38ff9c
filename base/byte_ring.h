// The way from the trainer's threads to the drain thread: one bounded ring of byte records.
//
// Router calls differ in size by six orders of magnitude, so a record takes the bytes it needs. The
// agent has one in ordinary memory, for what the host hands over, and one a GPU in pinned memory,
// that the GPU writes into. Records come out in the order in which they were reserved. Any number
// of producers, one consumer, no lock, nothing allocated after construction.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace plumbline {

class ByteRing {
 public:
  static constexpr size_t kAlign = 64;
  // Room that only Reserve(..., Keep::kUse) may take: step ends must not be crowded out by tensors.
  static constexpr size_t kKept = 16 << 10;
  enum class Keep { kLeave, kUse };

  // Capacity is rounded up to a power of two, at least 64 KiB. Memory is taken from the system and
  // touched only as it is used. valid() is false when there was none.
  explicit ByteRing(uint64_t capacity);
  // Over memory of the caller's, page-aligned, of a power of two of bytes, at least 64 KiB; it must
  // outlive the ring.
  ByteRing(std::byte* memory, uint64_t bytes);
  ~ByteRing();
  ByteRing(const ByteRing&) = delete;
  ByteRing& operator=(const ByteRing&) = delete;

  bool valid() const { return data_ != nullptr; }
  uint64_t capacity() const { return mask_ + 1; }

  // The largest record that fits whenever the ring is empty, wherever its head stands.
  uint64_t max_record() const { return (mask_ + 1) / 2 - kKept - kAlign; }

  // Producers. Writable memory for `bytes` bytes aligned to kAlign, or nullptr when the ring is
  // full. Every reserved record must be committed: it holds back the later ones.
  std::byte* Reserve(size_t bytes, Keep keep = Keep::kLeave);
  void Commit(std::byte* record);

  // Bytes between the oldest unread record and the newest reserved one.
  uint64_t used() const {
    return head_.load(std::memory_order_relaxed) - tail_.load(std::memory_order_relaxed);
  }

  // Consumer. The oldest record, or nullptr when there is none yet; Pop frees it.
  const std::byte* Front();
  void Pop();
  bool empty() const {
    return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_relaxed);
  }
  // Everything reserved before this call lies before this position; passed(position) says whether
  // the consumer has freed it all.
  uint64_t position() const { return head_.load(std::memory_order_acquire); }
  bool passed(uint64_t position) const { return tail_.load(std::memory_order_acquire) >= position; }

 private:
  struct Header {
    std::atomic<uint64_t> mark;  // (position + 1) ^ key_ once committed
    uint64_t total;              // bytes, header included
    uint64_t padding;            // 1: filler up to the end of the buffer
  };
  static_assert(sizeof(Header) <= kAlign);

  Header* At(uint64_t position) const {
    return reinterpret_cast<Header*>(data_ + (position & mask_));
  }

  std::byte* data_ = nullptr;
  bool borrowed_ = false;
  uint64_t mask_ = 0;
  uint64_t key_ = 0;
  alignas(kAlign) std::atomic<uint64_t> head_{0};
  alignas(kAlign) std::atomic<uint64_t> tail_{0};
};

}  // namespace plumbline
