#include "server/stream/judge_queue.h"

#include <gtest/gtest.h>

#include <thread>

#include "server/ingest/ack_policy.h"

namespace plumbline::server {
namespace {

using Clock = JudgeQueue::Clock;

JudgeItem OfBytes(size_t bytes) {
  JudgeItem item;
  item.batch.bytes = bytes;
  return item;
}

bool Add(JudgeQueue& queue, size_t bytes, std::function<void()> resume = nullptr) {
  const bool room = queue.Admit(bytes, std::move(resume));
  queue.Push(OfBytes(bytes));
  return room;
}

TEST(JudgeQueue, PausesItsSendersWhenFullAndLosesNothing) {
  JudgeQueue queue(10000);
  int resumed = 0;
  EXPECT_TRUE(Add(queue, 9000, [&] { ++resumed; }));
  EXPECT_FALSE(Add(queue, 9000, [&] { ++resumed; }));
  EXPECT_FALSE(Add(queue, 9000, [&] { ++resumed; }));
  EXPECT_EQ(queue.size(), 3u);
  JudgeItem item;
  EXPECT_EQ(queue.Pop(Clock::now(), &item), JudgeQueue::Popped::kItem);
  EXPECT_EQ(resumed, 0);
  EXPECT_EQ(queue.Pop(Clock::now(), &item), JudgeQueue::Popped::kItem);
  EXPECT_EQ(resumed, 0);  // 9000 of 10000: more than half
  EXPECT_EQ(queue.Pop(Clock::now(), &item), JudgeQueue::Popped::kItem);
  EXPECT_EQ(resumed, 2);
  EXPECT_EQ(queue.Pop(Clock::now(), &item), JudgeQueue::Popped::kTimeout);
}

TEST(JudgeQueue, CountsBatchesFromTheirAnnouncement) {
  JudgeQueue queue(10000);
  EXPECT_TRUE(queue.Admit(9000, [] {}));
  EXPECT_FALSE(queue.Admit(9000, [] {}));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(JudgeQueue, WhileHeldEverySenderPauses) {
  JudgeQueue queue(10000);
  int resumed = 0;
  queue.Hold(true);
  EXPECT_FALSE(Add(queue, 10, [&] { ++resumed; }));
  EXPECT_TRUE(Add(queue, 10));  // who cannot pause is never told to
  JudgeItem item;
  EXPECT_EQ(queue.Pop(Clock::now(), &item), JudgeQueue::Popped::kItem);
  EXPECT_EQ(queue.Pop(Clock::now(), &item), JudgeQueue::Popped::kItem);
  EXPECT_EQ(resumed, 0);
  queue.Hold(false);
  EXPECT_EQ(resumed, 1);
  EXPECT_TRUE(Add(queue, 10, [&] { ++resumed; }));
}

TEST(JudgeQueue, IsEmptiedBeforeItCloses) {
  JudgeQueue queue(10000);
  Add(queue, 1);
  queue.Close();
  Add(queue, 1);  // refused: it was not acknowledged
  JudgeItem item;
  const auto later = Clock::now() + std::chrono::hours(1);
  EXPECT_EQ(queue.Pop(later, &item), JudgeQueue::Popped::kItem);
  EXPECT_EQ(queue.Pop(later, &item), JudgeQueue::Popped::kClosed);
}

TEST(JudgeQueue, WakesTheOneThatWaits) {
  JudgeQueue queue(10000);
  JudgeQueue::Popped popped = JudgeQueue::Popped::kTimeout;
  std::thread waiting([&] {
    JudgeItem item;
    popped = queue.Pop(Clock::now() + std::chrono::hours(1), &item);
  });
  Add(queue, 1);
  waiting.join();
  EXPECT_EQ(popped, JudgeQueue::Popped::kItem);
}

TEST(AckPolicy, AcknowledgesInCompanyOrAtOnce) {
  AckPolicy policy(3);
  EXPECT_FALSE(policy.anything());
  policy.Held(1);
  policy.Held(2);
  EXPECT_TRUE(policy.anything());
  EXPECT_FALSE(policy.due());
  policy.Held(3);
  EXPECT_TRUE(policy.due());
  EXPECT_EQ(policy.Take().sequence(), 3u);
  EXPECT_FALSE(policy.anything());
  policy.Held(4);
  policy.Refused(4, "why");
  EXPECT_TRUE(policy.due());
  const v1::Ack ack = policy.Take();
  EXPECT_EQ(ack.sequence(), 4u);
  ASSERT_EQ(ack.rejected_size(), 1);
  EXPECT_EQ(ack.rejected(0).reason(), "why");
  EXPECT_EQ(policy.Take().rejected_size(), 0);
}

}  // namespace
}  // namespace plumbline::server
