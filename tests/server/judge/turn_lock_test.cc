// Only one thread holds the lock; if the holder is slow, another thread takes over.
#include "server/judge/turn_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace plumbline::test {
namespace {

using server::TurnLock;
using std::chrono::milliseconds;

TEST(TurnLock, IsHadByOneAtATimeInTheOrderInWhichTheyCame) {
  TurnLock turn_lock;
  int unguarded = 0;  // the thread sanitizer checks it
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        turn_lock.Lock();
        ++unguarded;
        turn_lock.Unlock();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(unguarded, 4000);
  EXPECT_FALSE(turn_lock.wanted());
}

// Does a thousand pieces of work that take no time. Returns false if the machine stopped this
// thread for so long that it was slow, and another thread took over.
bool KeptThroughout() {
  TurnLock turn_lock;
  std::atomic<bool> taken{false};
  std::thread other([&] {
    if (!turn_lock.TakeOver()) return;
    taken = true;
    turn_lock.Unlock();
  });
  turn_lock.Lock();
  TurnLock::Work work;
  for (int i = 0; i < 1000 && !work.slow; ++i) {
    turn_lock.Begin(&work);
    turn_lock.OpenToTakeover(&work);
    turn_lock.CloseToTakeover(&work);
    EXPECT_EQ(taken, work.slow);
    turn_lock.End(&work);
  }
  turn_lock.Unlock();
  turn_lock.Stop();
  other.join();
  EXPECT_EQ(taken, work.slow);
  return !work.slow;
}

TEST(TurnLock, IsKeptByWhoIsQuick) {
  bool kept = false;
  for (int tries = 0; tries < 50 && !kept; ++tries) kept = KeptThroughout();
  EXPECT_TRUE(kept);
}

// Locks and is open to takeover until another thread has taken over; returns when it began.
TurnLock::Clock::time_point OpenUntil(const std::atomic<bool>& relieved, TurnLock* turn_lock,
                                      TurnLock::Work* work) {
  turn_lock->Lock();
  const auto begun = TurnLock::Clock::now();
  turn_lock->Begin(work);
  turn_lock->OpenToTakeover(work);
  while (!relieved) std::this_thread::sleep_for(milliseconds(1));
  return begun;
}

// The work ends only after the other thread has used the lock, so that thread had the lock.
TEST(TurnLock, IsLostByWhoIsSlowWhichComesBackToIt) {
  TurnLock turn_lock;
  int shared = 0;
  std::atomic<bool> relieved{false};
  std::thread other([&] {
    ASSERT_TRUE(turn_lock.TakeOver());
    ++shared;
    relieved = true;
    turn_lock.Unlock();
  });
  TurnLock::Work work;
  const auto begun = OpenUntil(relieved, &turn_lock, &work);
  EXPECT_GE(TurnLock::Clock::now() - begun, TurnLock::kSlow);
  turn_lock.CloseToTakeover(&work);
  EXPECT_TRUE(work.slow);
  EXPECT_EQ(++shared, 2);
  turn_lock.OpenToTakeover(&work);  // now it is passed on at once
  turn_lock.Lock();
  turn_lock.Unlock();
  turn_lock.CloseToTakeover(&work);
  turn_lock.End(&work);
  turn_lock.Unlock();
  other.join();
}

// While a checkpoint is due, a holder counts as slow later.
TEST(TurnLock, IsLostAfterTheTimeThatWasGiven) {
  constexpr milliseconds kGiven = 5 * TurnLock::kSlow;
  TurnLock turn_lock;
  std::atomic<bool> relieved{false};
  turn_lock.AllowTakeover(true, kGiven);
  std::thread other([&] {
    ASSERT_TRUE(turn_lock.TakeOver());
    relieved = true;
    turn_lock.Unlock();
  });
  TurnLock::Work work;
  const auto begun = OpenUntil(relieved, &turn_lock, &work);
  EXPECT_GE(TurnLock::Clock::now() - begun, kGiven);
  turn_lock.CloseToTakeover(&work);
  EXPECT_TRUE(work.slow);
  turn_lock.End(&work);
  turn_lock.Unlock();
  other.join();
}

TEST(TurnLock, IsNotTakenOverWhileItMayNotBeOrIsNotOpen) {
  TurnLock turn_lock;
  std::atomic<bool> relieved{false};
  turn_lock.AllowTakeover(false);
  std::thread other([&] {
    ASSERT_TRUE(turn_lock.TakeOver());
    relieved = true;
    turn_lock.Unlock();
  });
  turn_lock.Lock();
  TurnLock::Work work;
  turn_lock.Begin(&work);
  std::this_thread::sleep_for(3 * TurnLock::kSlow);
  EXPECT_FALSE(relieved) << "the work is not open to takeover";
  turn_lock.OpenToTakeover(&work);
  std::this_thread::sleep_for(3 * TurnLock::kSlow);
  EXPECT_FALSE(relieved) << "takeover is not allowed";
  turn_lock.AllowTakeover(true);
  while (!relieved) std::this_thread::sleep_for(milliseconds(1));
  turn_lock.CloseToTakeover(&work);
  turn_lock.End(&work);
  turn_lock.Unlock();
  other.join();
}

}  // namespace
}  // namespace plumbline::test
