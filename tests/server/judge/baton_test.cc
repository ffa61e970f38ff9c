// One thread has it; who is slow is gone on beside.
#include "server/judge/baton.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace plumbline::test {
namespace {

using server::Baton;
using std::chrono::milliseconds;

TEST(Baton, IsHadByOneAtATimeInTheOrderInWhichTheyCame) {
  Baton baton;
  int unguarded = 0;  // the thread sanitizer sees to it
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        baton.Take();
        ++unguarded;
        baton.Give();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(unguarded, 4000);
  EXPECT_FALSE(baton.wanted());
}

// A thousand pieces of work that take no time. False: the machine stopped this thread for so long
// that it was slow, and another one was let in.
bool KeptThroughout() {
  Baton baton;
  std::atomic<bool> taken{false};
  std::thread relief([&] {
    if (!baton.TakeFromSlow()) return;
    taken = true;
    baton.Give();
  });
  baton.Take();
  Baton::Work work;
  for (int i = 0; i < 1000 && !work.slow; ++i) {
    baton.Begin(&work);
    baton.Loosen(&work);
    baton.Tighten(&work);
    EXPECT_EQ(taken, work.slow);
    baton.End(&work);
  }
  baton.Give();
  baton.Stop();
  relief.join();
  EXPECT_EQ(taken, work.slow);
  return !work.slow;
}

TEST(Baton, IsKeptByWhoIsQuick) {
  bool kept = false;
  for (int tries = 0; tries < 50 && !kept; ++tries) kept = KeptThroughout();
  EXPECT_TRUE(kept);
}

// The work ends only after the relief has done something with the baton: so it had it.
TEST(Baton, IsLostByWhoIsSlowWhichComesBackToIt) {
  Baton baton;
  int shared = 0;
  std::atomic<bool> relieved{false};
  std::thread relief([&] {
    ASSERT_TRUE(baton.TakeFromSlow());
    ++shared;
    relieved = true;
    baton.Give();
  });
  baton.Take();
  Baton::Work work;
  const auto begun = Baton::Clock::now();
  baton.Begin(&work);
  baton.Loosen(&work);
  while (!relieved) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_GE(Baton::Clock::now() - begun, Baton::kSlow);
  baton.Tighten(&work);
  EXPECT_TRUE(work.slow);
  EXPECT_EQ(++shared, 2);
  baton.Loosen(&work);  // now it is given away at once
  baton.Take();
  baton.Give();
  baton.Tighten(&work);
  baton.End(&work);
  baton.Give();
  relief.join();
}

TEST(Baton, IsNotTakenWhileItMayNotBeOrHasNotBeenLoosened) {
  Baton baton;
  std::atomic<bool> relieved{false};
  baton.AllowTaking(false);
  std::thread relief([&] {
    ASSERT_TRUE(baton.TakeFromSlow());
    relieved = true;
    baton.Give();
  });
  baton.Take();
  Baton::Work work;
  baton.Begin(&work);
  std::this_thread::sleep_for(3 * Baton::kSlow);
  EXPECT_FALSE(relieved) << "it is not loose";
  baton.Loosen(&work);
  std::this_thread::sleep_for(3 * Baton::kSlow);
  EXPECT_FALSE(relieved) << "nobody may";
  baton.AllowTaking(true);
  while (!relieved) std::this_thread::sleep_for(milliseconds(1));
  baton.Tighten(&work);
  baton.End(&work);
  baton.Give();
  relief.join();
}

}  // namespace
}  // namespace plumbline::test
