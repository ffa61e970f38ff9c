// The order of judging, with the test's own clock.
#include "server/judge/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace plumbline::test {
namespace {

using server::FairQueue;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

FairQueue::Time At(int64_t ms) { return FairQueue::Time(std::chrono::hours(1)) + milliseconds(ms); }

class LanesTest : public testing::Test {
 protected:
  void Push(std::vector<std::string> runs, uint64_t entry, int64_t ms = 0, uint64_t stream = 0) {
    FairQueue::Work work;
    work.runs = std::move(runs);
    work.entry = entry;
    work.since = At(ms);
    work.stream = stream;
    fair_queue_.Push(std::move(work));
  }
  void PushFirst(const std::string& run, bool room = false) {
    FairQueue::Work work;
    work.runs = {run};
    work.room = room;
    work.since = At(0);
    fair_queue_.PushFirst(std::move(work));
  }
  // Begins the next work and returns its entry; -1 if none can begin.
  int64_t Begin(int64_t ms = 0, FairQueue::Which which = FairQueue::Which::kAny) {
    auto begun = fair_queue_.Next(At(ms), which);
    if (!begun) return -1;
    begun_.push_back(std::move(*begun));
    return static_cast<int64_t>(begun_.back().work.entry);
  }
  void End(uint64_t entry, int64_t took_ms = 0) {
    const auto found = std::find_if(begun_.begin(), begun_.end(),
                                    [&](const auto& b) { return b.work.entry == entry; });
    ASSERT_NE(found, begun_.end());
    fair_queue_.Done(*found, milliseconds(took_ms));
    begun_.erase(found);
  }

  FairQueue fair_queue_;
  std::vector<FairQueue::Begun> begun_;
};

TEST_F(LanesTest, WhileNothingWaitsLongAllIsInTheOrderInWhichItCame) {
  for (uint64_t entry = 1; entry <= 9; ++entry) Push({entry % 2 == 0 ? "a" : "b"}, entry);
  for (uint64_t entry = 1; entry <= 9; ++entry) {
    EXPECT_EQ(Begin(29), static_cast<int64_t>(entry));
    End(entry, 5);
    EXPECT_EQ(fair_queue_.through(), entry);
  }
  EXPECT_EQ(Begin(), -1);
  EXPECT_TRUE(fair_queue_.empty());
}

TEST_F(LanesTest, ARunIsJudgedOneEntryAfterTheOther) {
  Push({"a"}, 1);
  Push({"a"}, 2);
  Push({"b"}, 3);
  EXPECT_EQ(Begin(), 1);
  EXPECT_EQ(Begin(), 3) << "the second of a waits for the first";
  EXPECT_TRUE(begun_.back().overtakes);
  EXPECT_EQ(Begin(), -1);
  End(3);
  EXPECT_EQ(fair_queue_.through(), 0u);
  EXPECT_EQ(fair_queue_.ThroughOf("b"), 3u);
  EXPECT_EQ(fair_queue_.ThroughOf("a"), 0u);
  EXPECT_THAT(fair_queue_.Ahead(), ElementsAre(Pair("b", 3u)));
  EXPECT_FALSE(fair_queue_.in_order());
  End(1);
  EXPECT_EQ(fair_queue_.through(), 1u);
  EXPECT_EQ(Begin(), 2);
  EXPECT_FALSE(begun_.back().overtakes);
  End(2);
  EXPECT_EQ(fair_queue_.through(), 3u);
  EXPECT_THAT(fair_queue_.Ahead(), IsEmpty());
  EXPECT_TRUE(fair_queue_.in_order());
}

TEST_F(LanesTest, WhatABatchOrAStreamTiesTogetherIsJudgedInOneOrder) {
  Push({"a"}, 1, 0, 7);
  Push({"b"}, 2, 0, 8);
  Push({"c"}, 3, 0, 7);       // on the stream of a, which may have declared its sets
  Push({"b", "d"}, 4, 0, 9);  // on a stream of b, too
  Push({"d"}, 5);
  Push({"e"}, 6);
  EXPECT_EQ(Begin(), 1);
  EXPECT_EQ(Begin(), 2);
  EXPECT_EQ(Begin(), 6);
  EXPECT_EQ(Begin(), -1);
  End(2);
  EXPECT_EQ(Begin(), 4);
  EXPECT_EQ(Begin(), -1);
  End(4);
  EXPECT_EQ(Begin(), 5);
  End(1);
  EXPECT_EQ(Begin(), 3);
  End(5);
  End(6);
  EXPECT_EQ(fair_queue_.through(), 2u);
  EXPECT_EQ(fair_queue_.ThroughOf("d"), 5u);
  End(3);
  EXPECT_TRUE(fair_queue_.empty());
  Push({"a"}, 8, 0, 7);
  Push({"c"}, 9, 0, 10);
  EXPECT_EQ(Begin(), 8);
  EXPECT_EQ(Begin(), 9) << "nothing that ties them waits any more";
}

TEST_F(LanesTest, TiesOfLanesInWhichSomethingGoesOnWaitForAllOfIt) {
  Push({"a"}, 1);
  Push({"b"}, 2);
  EXPECT_EQ(Begin(), 1);
  EXPECT_EQ(Begin(), 2);
  Push({"a", "b"}, 3);
  End(1);
  EXPECT_EQ(Begin(), -1);
  End(2);
  EXPECT_EQ(Begin(), 3);
}

// A run that sends little is next, for any backlog of the others, when each of those had a turn.
TEST_F(LanesTest, ALightUserDoesNotWaitForTheLoadOfOthers) {
  constexpr int64_t kHostile = 40,
                    kEach = 20;  // runs; ms per entry, after which it loses the lock
  uint64_t entry = 0;
  for (int i = 0; i < 50; ++i) {
    for (int run = 0; run < kHostile; ++run) Push({"hostile" + std::to_string(run)}, ++entry);
  }
  int64_t now = 0, longest = 0;
  uint64_t quiet = 0;
  int64_t quiet_since = 0, next_quiet = kHostile * kEach, heard = 0;
  for (int done = 0; done < 50 * kHostile;) {
    if (quiet == 0 && now >= next_quiet) {
      next_quiet = now + 60;
      quiet = ++entry;
      quiet_since = now;
      Push({"quiet"}, quiet, now);
    }
    const int64_t next = Begin(now);
    ASSERT_GT(next, 0);
    if (static_cast<uint64_t>(next) == quiet) {
      longest = std::max(longest, now - quiet_since);
      quiet = 0;
      ++heard;
      End(static_cast<uint64_t>(next), 0);
    } else {
      now += kEach;
      ++done;
      End(static_cast<uint64_t>(next), kEach);
    }
  }
  EXPECT_GT(heard, 600);
  EXPECT_EQ(longest, 0) << "but for what goes on already";
}

// In an earlier version, a thousand flows that had each used less than a waiting flow all went
// before it, and a NaN of a new run waited for more than a minute.
TEST_F(LanesTest, ANewRunGoesBeforeManyWhoseTurnsDiffer) {
  constexpr uint64_t kRuns = 50;
  uint64_t entry = 0;
  Push({"slow"}, ++entry);
  ASSERT_EQ(Begin(0), 1);
  End(1, 1000);
  Push({"slow"}, ++entry);
  for (uint64_t run = 0; run < kRuns; ++run) {
    for (int i = 0; i < 4; ++i) Push({"busy" + std::to_string(run)}, ++entry);
  }
  const auto turn = [&](int64_t ms, int64_t took) {
    const int64_t begun = Begin(ms);
    End(static_cast<uint64_t>(begun), took);
    return begun;
  };
  EXPECT_EQ(turn(0, 1), 2) << "while nothing waits long, the slow one has its turn, too";
  for (uint64_t i = 0; i < kRuns; ++i) turn(100, 30);
  Push({"new"}, ++entry, 100);
  EXPECT_EQ(turn(100, 1), static_cast<int64_t>(entry));
  Push({"slow"}, ++entry, 100);
  Push({"new"}, ++entry, 100);
  EXPECT_EQ(turn(100, 18), static_cast<int64_t>(entry)) << "within its credit";
  // Several new ones each have a turn, in order of arrival.
  Push({"newer"}, ++entry, 100);
  Push({"newest"}, ++entry, 100);
  EXPECT_EQ(turn(100, 1), static_cast<int64_t>(entry - 1));
  EXPECT_EQ(turn(100, 1), static_cast<int64_t>(entry));
  // After it has used its credit, it takes turns with the others.
  Push({"new"}, ++entry, 100);
  EXPECT_EQ(turn(100, 5), static_cast<int64_t>(entry));
  Push({"new"}, ++entry, 100);
  EXPECT_NE(turn(100, 5), static_cast<int64_t>(entry));
}

TEST_F(LanesTest, RunsThatSendAsMuchAsTheyCanTakeTurnsByTime) {
  uint64_t entry = 0;
  for (int i = 0; i < 400; ++i) Push({"small"}, ++entry);
  for (int i = 0; i < 100; ++i) Push({"large"}, ++entry);
  int64_t now = 1000, used[2] = {0, 0};
  while (used[0] + used[1] < 800) {
    const auto next = static_cast<uint64_t>(Begin(now));
    const bool large = next > 400;
    const int64_t took = large ? 10 : 1;
    used[large ? 1 : 0] += took;
    now += took;
    End(next, took);
    EXPECT_LE(std::abs(used[0] - used[1]), 10);
  }
}

TEST_F(LanesTest, DecisionsGoBeforeWhatWaitsOfTheirRun) {
  Push({"a"}, 1);
  Push({"a"}, 2);
  PushFirst("a");
  EXPECT_TRUE(fair_queue_.Urgent("a"));
  EXPECT_EQ(Begin(), 0);
  EXPECT_FALSE(fair_queue_.Urgent("a"));
  EXPECT_EQ(Begin(), -1);
  End(0);
  EXPECT_EQ(Begin(), 1);
  PushFirst("a");
  End(1);
  EXPECT_EQ(Begin(), 0);
  End(0);
  EXPECT_EQ(Begin(), 2);
}

TEST_F(LanesTest, RoomIsMadeBeforeAnythingElse) {
  Push({"a"}, 1);
  Push({"b"}, 2);
  PushFirst("b", true);
  EXPECT_EQ(Begin(0, FairQueue::Which::kRoom), 0);
  EXPECT_EQ(begun_[0].work.runs, std::vector<std::string>{"b"});
  EXPECT_EQ(Begin(0, FairQueue::Which::kRoom), -1);
  EXPECT_EQ(Begin(), 1);
}

TEST_F(LanesTest, InOrderNothingOvertakes) {
  Push({"slow"}, 1);
  Push({"a"}, 2);
  Push({"slow"}, 3);
  Push({"a"}, 4);
  EXPECT_EQ(Begin(), 1);
  EXPECT_EQ(Begin(0, FairQueue::Which::kInOrder), -1);
  PushFirst("a");
  EXPECT_EQ(Begin(0, FairQueue::Which::kInOrder), 0) << "a decision overtakes nothing";
  End(0);
  End(1);
  for (const int64_t entry : {2, 3, 4}) {
    EXPECT_EQ(Begin(100, FairQueue::Which::kInOrder), entry);
    End(static_cast<uint64_t>(entry));
  }
}

TEST_F(LanesTest, WhoIsHeldBackBeginsNothingUntilItMay) {
  Push({"slow"}, 1);
  Push({"slow"}, 2);
  Push({"a"}, 3);
  EXPECT_EQ(Begin(), 1);
  fair_queue_.HoldBackBusy();
  EXPECT_EQ(Begin(), 3);
  End(3);
  End(1);
  EXPECT_EQ(Begin(), -1);
  EXPECT_EQ(fair_queue_.going_on(), 0u);
  Push({"a"}, 4);
  EXPECT_EQ(Begin(), 4);
  fair_queue_.HoldNone();
  EXPECT_EQ(Begin(), 2);
}

TEST_F(LanesTest, ALaneIsTakenWithoutWork) {
  auto taken = fair_queue_.Occupy("a");
  ASSERT_TRUE(taken);
  EXPECT_FALSE(fair_queue_.Occupy("a"));
  Push({"a"}, 1);
  EXPECT_TRUE(fair_queue_.Busy("a"));
  EXPECT_EQ(Begin(), -1);
  fair_queue_.Done(*taken, milliseconds(1));
  EXPECT_EQ(Begin(), 1);
}

TEST_F(LanesTest, SinceWhenSomethingOfARunWaits) {
  EXPECT_EQ(fair_queue_.WaitsSince("a"), FairQueue::Time::max());
  Push({"a"}, 1, 5);
  Push({"a"}, 2, 8);
  EXPECT_EQ(fair_queue_.WaitsSince("a"), At(5));
  EXPECT_EQ(Begin(5), 1);
  EXPECT_EQ(fair_queue_.WaitsSince("a"), At(5)) << "it goes on";
  End(1);
  EXPECT_EQ(fair_queue_.WaitsSince("a"), At(8));
}

// Random work: runs are judged in order, never two entries at a time, no work is lost, and
// `through` is correct.
TEST_F(LanesTest, WhateverComesEachRunIsJudgedInOrder) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    fair_queue_ = FairQueue();
    std::set<uint64_t> left;
    std::map<std::string, std::vector<uint64_t>> order, judged;
    std::multiset<std::string> going_on;
    uint64_t entry = 0;
    for (int64_t now = 0; now < 300 || !left.empty(); ++now) {
      if (now < 300 && random() % 2 == 0) {
        std::set<std::string> runs;
        for (size_t n = 1 + (random() % 5 == 0 ? random() % 3 : 0); n > 0; --n)
          runs.insert(std::string(1, static_cast<char>('a' + random() % 6)));
        Push({runs.begin(), runs.end()}, ++entry, now, random() % 4);
        left.insert(entry);
        for (const std::string& run : runs) order[run].push_back(entry);
      }
      if (random() % 2 == 0 && begun_.size() < 3) {
        const int64_t next =
            Begin(now, random() % 8 == 0 ? FairQueue::Which::kInOrder : FairQueue::Which::kAny);
        if (next > 0) {
          for (const std::string& run : begun_.back().work.runs) {
            ASSERT_EQ(going_on.count(run), 0u);
            going_on.insert(run);
            judged[run].push_back(static_cast<uint64_t>(next));
          }
          EXPECT_EQ(begun_.back().overtakes, *left.begin() < static_cast<uint64_t>(next));
        }
      }
      if (random() % 3 == 0) fair_queue_.HoldBackBusy();
      if (random() % 3 == 0) fair_queue_.HoldNone();
      if (!begun_.empty() && random() % 2 == 0) {
        const FairQueue::Begun& done = begun_[random() % begun_.size()];
        for (const std::string& run : done.work.runs) going_on.erase(run);
        left.erase(done.work.entry);
        End(done.work.entry, static_cast<int64_t>(random() % 50));
      }
      ASSERT_EQ(fair_queue_.through(), left.empty() ? entry : *left.begin() - 1);
      for (const auto& [run, entries] : judged) {
        uint64_t through = fair_queue_.through();
        for (const uint64_t e : entries)
          through = left.contains(e) ? through : std::max(through, e);
        ASSERT_EQ(fair_queue_.ThroughOf(run), through);
      }
    }
    EXPECT_EQ(judged, order);
    fair_queue_.HoldNone();
    EXPECT_TRUE(fair_queue_.empty());
  }
}

}  // namespace
}  // namespace plumbline::test
