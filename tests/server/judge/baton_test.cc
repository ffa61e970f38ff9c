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

TEST(Baton, IsKeptByWhoIsQuick) {
  Baton baton;
  std::atomic<bool> taken{false};
  std::thread relief([&] { taken = baton.TakeFromSlow(); });
  baton.Take();
  Baton::Work work;
  for (int i = 0; i < 1000; ++i) {
    baton.Begin(&work);
    baton.Loosen(&work);
    baton.Tighten(&work);
    // A machine that stops this thread for long enough makes it slow.
    if (work.slow) GTEST_SKIP() << "this machine was too busy: another thread was let in";
    baton.End(&work);
  }
  EXPECT_FALSE(taken);
  baton.Give();
  baton.Stop();
  relief.join();
  EXPECT_FALSE(taken);
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
