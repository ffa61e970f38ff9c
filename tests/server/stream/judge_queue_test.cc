#include "server/stream/judge_queue.h"

#include <gtest/gtest.h>

#include <thread>

#include "server/ingest/ack_policy.h"

namespace plumbline::server {
namespace {

using Clock = JudgeQueue::Clock;

bool Add(JudgeQueue& queue, size_t bytes, std::function<void()> resume = nullptr,
         const std::string& run = "r") {
  const bool room = queue.Admit(run, bytes, std::move(resume));
  JudgeItem item;
  item.batch.bytes = bytes;
  item.charged_run = run;
  queue.Push(std::move(item));
  return room;
}

// Takes the next item and begins it.
JudgeQueue::Popped Take(JudgeQueue& queue, Clock::time_point until = Clock::now()) {
  JudgeItem item;
  const JudgeQueue::Popped popped = queue.Pop(until, &item);
  if (popped == JudgeQueue::Popped::kItem) queue.Began(item);
  return popped;
}

TEST(JudgeQueue, PausesItsSendersWhenFullAndLosesNothing) {
  JudgeQueue queue(20000);
  int resumed = 0;
  EXPECT_TRUE(Add(queue, 9000, [&] { ++resumed; }));
  EXPECT_FALSE(Add(queue, 9000, [&] { ++resumed; }));
  EXPECT_FALSE(Add(queue, 9000, [&] { ++resumed; }));
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_EQ(Take(queue), JudgeQueue::Popped::kItem);
  EXPECT_EQ(resumed, 0);
  EXPECT_EQ(Take(queue), JudgeQueue::Popped::kItem);
  EXPECT_EQ(resumed, 2);  // 9512 of 20000: less than half
  EXPECT_EQ(Take(queue), JudgeQueue::Popped::kItem);
  EXPECT_EQ(resumed, 2);
  EXPECT_EQ(Take(queue), JudgeQueue::Popped::kTimeout);
}

TEST(JudgeQueue, CountsBatchesFromTheirAnnouncementUntilTheyAreBegun) {
  JudgeQueue queue(20000);
  EXPECT_TRUE(queue.Admit("r", 9000, [] {}));
  EXPECT_FALSE(queue.Admit("r", 9000, [] {}));
  EXPECT_EQ(queue.size(), 0u);
  Add(queue, 1000);
  const size_t bytes = queue.bytes();
  JudgeItem item;
  EXPECT_EQ(queue.Pop(Clock::now(), &item), JudgeQueue::Popped::kItem);
  EXPECT_EQ(queue.bytes(), bytes);
  EXPECT_EQ(queue.size(), 1u);
  queue.Began(item);
  EXPECT_EQ(queue.bytes(), bytes - 1512);
  EXPECT_EQ(queue.size(), 0u);
}

// There is always space for a run that sends little, and the total is limited.
TEST(JudgeQueue, OneRunDoesNotTakeTheRoomOfOthers) {
  JudgeQueue queue(10'000'000);
  int resumed = 0;
  for (const char* greedy : {"a", "b", "c", "d"}) {
    while (Add(
        queue, 1000, [&] { ++resumed; }, greedy)) {
    }
  }
  EXPECT_LT(queue.bytes(), 10'000'000u);
  EXPECT_TRUE(Add(
      queue, 1000, [&] { ++resumed; }, "quiet"));
  EXPECT_TRUE(Add(
      queue, 1000, [&] { ++resumed; }, "another"));
  EXPECT_FALSE(Add(
      queue, 1000, [&] { ++resumed; }, "d"));
  while (Take(queue) == JudgeQueue::Popped::kItem) {
  }
  EXPECT_EQ(resumed, 5) << "everybody goes on";
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST(JudgeQueue, WhileHeldEverySenderPauses) {
  JudgeQueue queue(10000);
  int resumed = 0;
  queue.Hold(true);
  EXPECT_FALSE(Add(queue, 10, [&] { ++resumed; }));
  EXPECT_TRUE(Add(queue, 10));  // a caller that cannot pause is never paused
  EXPECT_EQ(Take(queue), JudgeQueue::Popped::kItem);
  EXPECT_EQ(Take(queue), JudgeQueue::Popped::kItem);
  EXPECT_EQ(resumed, 0);
  queue.Hold(false);
  EXPECT_EQ(resumed, 1);
  EXPECT_TRUE(Add(queue, 10, [&] { ++resumed; }));
}

TEST(JudgeQueue, IsEmptiedBeforeItCloses) {
  JudgeQueue queue(10000);
  Add(queue, 1);
  queue.Close();
  Add(queue, 1);  // dropped: it was not acknowledged
  const auto later = Clock::now() + std::chrono::hours(1);
  EXPECT_EQ(Take(queue, later), JudgeQueue::Popped::kItem);
  EXPECT_EQ(Take(queue, later), JudgeQueue::Popped::kClosed);
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
