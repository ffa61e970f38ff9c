#include "base/ring_buffer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace plumbline {
namespace {

TEST(RingBuffer, KeepsOrderAndRefusesWhenFull) {
  RingBuffer<int> ring(4);
  ASSERT_EQ(ring.capacity(), 4u);
  int out = 0;
  EXPECT_FALSE(ring.TryPop(&out));
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(ring.TryPush(round * 10 + i));
    EXPECT_FALSE(ring.TryPush(99));
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(ring.TryPop(&out));
      EXPECT_EQ(out, round * 10 + i);
    }
    EXPECT_FALSE(ring.TryPop(&out));
  }
}

TEST(RingBuffer, RoundsItsCapacityUp) {
  EXPECT_EQ(RingBuffer<char>(0).capacity(), 2u);
  EXPECT_EQ(RingBuffer<char>(5).capacity(), 8u);
}

struct Message {
  int producer;
  int number;
  int check[30];  // large enough that a torn slot would show
};

// What was pushed arrives once, whole, and in each producer's order; refusals plus arrivals make up
// all attempts.
TEST(RingBuffer, LosesAndTearsNothingUnderContention) {
  constexpr int kProducers = 3;
  constexpr int kAttempts = 30000;
  RingBuffer<Message> ring(16);
  std::atomic<int> refused{0};
  std::atomic<int> running{kProducers};
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int n = 0; n < kAttempts; ++n) {
        const bool pushed = ring.TryPushWith([&](Message* m) {
          m->producer = p;
          m->number = n;
          for (int& c : m->check) c = p * kAttempts + n;
        });
        if (!pushed) {
          ++refused;
          std::this_thread::yield();
        }
      }
      --running;
    });
  }
  int arrived = 0;
  int last[kProducers] = {-1, -1, -1};
  const auto take = [&](const Message& m) {
    ++arrived;
    EXPECT_GT(m.number, last[m.producer]);
    last[m.producer] = m.number;
    for (int c : m.check) ASSERT_EQ(c, m.producer * kAttempts + m.number);
  };
  while (running > 0) {
    if (!ring.TryPopWith(take)) std::this_thread::yield();
  }
  while (ring.TryPopWith(take)) {
  }
  for (std::thread& t : producers) t.join();
  EXPECT_EQ(arrived + refused, kProducers * kAttempts);
  EXPECT_GT(arrived, 0);
}

}  // namespace
}  // namespace plumbline
