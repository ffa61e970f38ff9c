#include "base/byte_ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <random>

namespace plumbline {
namespace {

// The place of a header held a tensor's bytes one lap ago. The key prevents such bytes from being
// read as a commit mark (chance 2^-64 per look).
uint64_t RandomKey() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32) | random();
}

}  // namespace

ByteRing::ByteRing(uint64_t capacity) {
  const uint64_t size = std::bit_ceil(std::max<uint64_t>(capacity, 64 << 10));
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(memory);
  mask_ = size - 1;
  key_ = RandomKey();
}

ByteRing::ByteRing(std::byte* memory, uint64_t bytes)
    : data_(memory), borrowed_(true), mask_(bytes - 1), key_(RandomKey()) {}

ByteRing::~ByteRing() {
  if (data_ != nullptr && !borrowed_) munmap(data_, mask_ + 1);
}

std::byte* ByteRing::Reserve(size_t bytes, Keep keep) {
  if (data_ == nullptr || bytes > max_record()) return nullptr;
  const uint64_t capacity = mask_ + 1;
  const uint64_t total = (bytes + kAlign + kAlign - 1) & ~uint64_t{kAlign - 1};
  const uint64_t room = keep == Keep::kLeave ? capacity - kKept : capacity;
  uint64_t head = head_.load(std::memory_order_relaxed);
  uint64_t filler = 0;
  do {
    const uint64_t to_end = capacity - (head & mask_);
    filler = to_end < total ? to_end : 0;
    // The acquire orders our writes after the consumer's last reads of the memory that it freed.
    const uint64_t used = head - tail_.load(std::memory_order_acquire);
    if (used + filler + total > room) return nullptr;
  } while (!head_.compare_exchange_weak(head, head + filler + total, std::memory_order_acq_rel,
                                        std::memory_order_relaxed));

  if (filler != 0) {
    Header* pad = At(head);
    pad->total = filler;
    pad->padding = 1;
    pad->mark.store((head + 1) ^ key_, std::memory_order_release);
    head += filler;
  }
  Header* header = At(head);
  header->total = total;
  header->padding = 0;
  return reinterpret_cast<std::byte*>(header) + kAlign;
}

void ByteRing::Commit(std::byte* record) {
  Header* header = reinterpret_cast<Header*>(record - kAlign);
  // Only one position of this place lies within the window [tail, head).
  const auto place = static_cast<uint64_t>(record - kAlign - data_);
  const uint64_t tail = tail_.load(std::memory_order_relaxed);
  const uint64_t position = tail + ((place - tail) & mask_);
  header->mark.store((position + 1) ^ key_, std::memory_order_release);
}

const std::byte* ByteRing::Front() {
  for (;;) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (head_.load(std::memory_order_acquire) == tail) return nullptr;
    const Header* header = At(tail);
    if (header->mark.load(std::memory_order_acquire) != ((tail + 1) ^ key_)) return nullptr;
    if (header->padding == 0) return reinterpret_cast<const std::byte*>(header) + kAlign;
    tail_.store(tail + header->total, std::memory_order_release);
  }
}

void ByteRing::Pop() {
  const uint64_t tail = tail_.load(std::memory_order_relaxed);
  tail_.store(tail + At(tail)->total, std::memory_order_release);
}

}  // namespace plumbline
