// Tests the ring between the trainer's threads and the drain thread.
#include "base/byte_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace plumbline {
namespace {

struct Item {
  uint64_t producer;
  uint64_t number;
  uint64_t bytes;
};

bool PutItem(ByteRing* ring, const Item& item) {
  std::byte* record = ring->Reserve(item.bytes);
  if (record == nullptr) return false;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(record) % ByteRing::kAlign, 0u);
  std::memcpy(record, &item, sizeof(item));
  std::memset(record + sizeof(item), static_cast<int>(item.number % 251),
              item.bytes - sizeof(item));
  ring->Commit(record);
  return true;
}

bool TakeItem(ByteRing* ring, Item* item) {
  const std::byte* record = ring->Front();
  if (record == nullptr) return false;
  std::memcpy(item, record, sizeof(*item));
  for (size_t i = sizeof(*item); i < item->bytes; ++i) {
    if (record[i] != static_cast<std::byte>(item->number % 251)) {
      ADD_FAILURE() << "byte " << i << " of " << item->bytes;
      break;
    }
  }
  ring->Pop();
  return true;
}

TEST(ByteRing, KeepsOrderOverManyLaps) {
  ByteRing ring(64 << 10);
  std::mt19937 random(3);
  uint64_t put = 0, taken = 0;
  for (int round = 0; round < 20000; ++round) {
    // Sometimes the largest possible record, so that fillers before the wrap are large too.
    const uint64_t most = random() % 4 == 0 ? ring.max_record() - sizeof(Item) : 3000;
    const uint64_t bytes = sizeof(Item) + random() % most;
    if (PutItem(&ring, {0, put, bytes})) ++put;
    ASSERT_LE(ring.used(), ring.capacity() - ByteRing::kKept);
    if (random() % 3 != 0) continue;
    Item item;
    while (random() % 4 != 0 && TakeItem(&ring, &item)) EXPECT_EQ(item.number, taken++);
  }
  Item item;
  while (TakeItem(&ring, &item)) EXPECT_EQ(item.number, taken++);
  EXPECT_EQ(put, taken);
  EXPECT_GT(put, 5000u);
  EXPECT_TRUE(ring.empty());
}

TEST(ByteRing, RefusesWhenFullAndKeepsRoomForStepEnds) {
  ByteRing ring(64 << 10);
  uint64_t put = 0;
  while (PutItem(&ring, {0, put, 1000})) ++put;
  EXPECT_GT(put, 40u);
  EXPECT_LE(ring.used(), ring.capacity() - ByteRing::kKept);
  std::byte* kept = ring.Reserve(64, ByteRing::Keep::kUse);
  ASSERT_NE(kept, nullptr);
  ring.Commit(kept);
  Item item;
  ASSERT_TRUE(TakeItem(&ring, &item));
  while (TakeItem(&ring, &item) && item.number + 1 < put) {
  }
  EXPECT_TRUE(PutItem(&ring, {0, 0, 1000}));
}

TEST(ByteRing, LargestRecordFitsWhereverTheHeadStands) {
  ByteRing ring(64 << 10);
  for (uint64_t shift = 0; shift < 64; ++shift) {
    Item item;
    ASSERT_TRUE(PutItem(&ring, {0, shift, 1500}));
    ASSERT_TRUE(TakeItem(&ring, &item));
    ASSERT_TRUE(PutItem(&ring, {0, shift, ring.max_record()})) << shift;
    ASSERT_TRUE(TakeItem(&ring, &item));
    EXPECT_EQ(ring.Reserve(ring.max_record() + 1), nullptr);
  }
}

TEST(ByteRing, AnUncommittedRecordHoldsBackLaterOnes) {
  ByteRing ring(64 << 10);
  std::byte* first = ring.Reserve(10);
  std::byte* second = ring.Reserve(10);
  ring.Commit(second);
  EXPECT_EQ(ring.Front(), nullptr);
  EXPECT_FALSE(ring.empty());
  ring.Commit(first);
  EXPECT_EQ(ring.Front(), first);
  ring.Pop();
  EXPECT_EQ(ring.Front(), second);
}

// Payload bytes of an earlier lap that look like a commit mark must not be accepted as one.
TEST(ByteRing, OldPayloadIsNoCommitMark) {
  ByteRing ring(64 << 10);
  std::byte* big = ring.Reserve(16000);
  for (size_t i = 0; i + 8 <= 16000; i += 8) {
    // These would be marks of the next lap if there were no key: position + 1.
    const uint64_t position = (64 << 10) + 64 + i + 1;
    std::memcpy(big + i, &position, 8);
  }
  ring.Commit(big);
  ring.Pop();
  while (ring.position() < (64 << 10)) {
    std::byte* filler = ring.Reserve(1000);
    ring.Commit(filler);
    ASSERT_NE(ring.Front(), nullptr);
    ring.Pop();
  }
  for (int i = 0; i < 20; ++i) {
    std::byte* open = ring.Reserve(64);
    ASSERT_NE(open, nullptr);
    EXPECT_EQ(ring.Front(), nullptr) << i;
    ring.Commit(open);
    EXPECT_EQ(ring.Front(), open);
    ring.Pop();
  }
}

TEST(ByteRing, ManyProducersOneConsumer) {
  constexpr uint64_t kThreads = 6, kEach = 4000;
  ByteRing ring(128 << 10);
  std::array<std::atomic<uint64_t>, kThreads> refused{};
  std::vector<std::thread> threads;
  for (uint64_t p = 0; p < kThreads; ++p) {
    threads.emplace_back([&, p] {
      std::mt19937 random(static_cast<uint32_t>(p));
      for (uint64_t n = 0; n < kEach; ++n) {
        if (!PutItem(&ring, {p, n, sizeof(Item) + random() % 3000})) {
          refused[p].fetch_add(1);
          std::this_thread::yield();
        }
      }
    });
  }
  std::array<uint64_t, kThreads> next{}, taken{};
  std::atomic<bool> done{false};
  std::thread joiner([&] {
    for (std::thread& t : threads) t.join();
    done.store(true);
  });
  for (;;) {
    const bool last = done.load();
    Item item;
    while (TakeItem(&ring, &item)) {
      ASSERT_LT(item.producer, kThreads);
      ASSERT_GE(item.number, next[item.producer]) << "out of order";
      next[item.producer] = item.number + 1;
      ++taken[item.producer];
    }
    if (last) break;
    std::this_thread::yield();
  }
  joiner.join();
  for (size_t p = 0; p < kThreads; ++p) EXPECT_EQ(taken[p] + refused[p].load(), kEach);
}

TEST(ByteRing, LivesInBorrowedMemory) {
  constexpr size_t kBytes = 64 << 10;
  alignas(4096) static std::byte memory[kBytes];
  {
    ByteRing ring(memory, kBytes);
    ASSERT_TRUE(ring.valid());
    EXPECT_EQ(ring.capacity(), kBytes);
    for (uint64_t n = 0; n < 500; ++n) {
      ASSERT_TRUE(PutItem(&ring, {0, n, 1000 + n}));
      const std::byte* front = ring.Front();
      EXPECT_TRUE(front >= memory && front < memory + kBytes);
      Item item;
      ASSERT_TRUE(TakeItem(&ring, &item));
      EXPECT_EQ(item.number, n);
    }
  }
  memory[0] = std::byte{1};  // still owned by the caller
}

}  // namespace
}  // namespace plumbline
