// A bounded ring of byte records from the trainer's threads to the drain thread.
//
// Router calls differ in size by six orders of magnitude, so a record takes exactly the bytes that
// it needs. The agent has one ring in ordinary memory, for host data, and one per GPU in pinned
// memory, into which the GPU writes. Records come out in the order in which they were reserved. Any
// number of producers, one consumer, no lock, no allocation after construction.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace plumbline {

class ByteRing {
 public:
  static constexpr size_t kAlign = 64;
  // Space that only Reserve(..., Keep::kUse) may take: tensors must not crowd out step ends.
  static constexpr size_t kKept = 16 << 10;
  enum class Keep { kLeave, kUse };

  // Allocates a ring. Capacity is rounded up to a power of two, at least 64 KiB. Memory comes from
  // the system and is touched only when it is used. valid() is false if there was none.
  explicit ByteRing(uint64_t capacity);
  // Uses memory of the caller: page-aligned, a power of two of bytes, at least 64 KiB. It must
  // outlive the ring.
  ByteRing(std::byte* memory, uint64_t bytes);
  ~ByteRing();
  ByteRing(const ByteRing&) = delete;
  ByteRing& operator=(const ByteRing&) = delete;

  bool valid() const { return data_ != nullptr; }
  uint64_t capacity() const { return mask_ + 1; }

  // Returns the size of the largest record that fits into an empty ring, at any position of its
  // head.
  uint64_t max_record() const { return (mask_ + 1) / 2 - kKept - kAlign; }

  // For producers. Returns writable memory for `bytes` bytes aligned to kAlign, or nullptr if the
  // ring is full. Every reserved record must be committed: it blocks the later ones.
  std::byte* Reserve(size_t bytes, Keep keep = Keep::kLeave);
  void Commit(std::byte* record);

  // Returns the bytes between the oldest unread record and the newest reserved one.
  uint64_t used() const {
    return head_.load(std::memory_order_relaxed) - tail_.load(std::memory_order_relaxed);
  }

  // For the consumer. Front returns the oldest record, or nullptr if there is none yet; Pop frees
  // it.
  const std::byte* Front();
  void Pop();
  bool empty() const {
    return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_relaxed);
  }
  // position returns a position after everything that was reserved before the call. passed returns
  // true if the consumer has freed everything before it.
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
