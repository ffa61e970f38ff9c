// A timeout does not run out while the server could not receive reports.
#include "server/judge/awake_clock.h"

#include <gtest/gtest.h>

namespace plumbline::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class AwakeClockTest : public testing::Test {
 protected:
  AwakeClockTest() { clock_.Look(real_, true); }
  void Pass(milliseconds time, bool hears = true) {
    real_ += time;
    clock_.Look(real_, hears);
  }
  AwakeClock::Time Now() { return clock_.At(real_); }

  AwakeClock::Time real_ = AwakeClock::Time() + seconds(1000);
  AwakeClock clock_;
  const AwakeClock::Time start_ = real_;
};

TEST_F(AwakeClockTest, GoesOnWhileThereAreLooks) {
  for (int i = 0; i < 50; ++i) Pass(milliseconds(100));
  EXPECT_EQ(Now() - start_, seconds(5));
}

TEST_F(AwakeClockTest, StandsWhileTheProcessWasStopped) {
  Pass(milliseconds(100));
  Pass(seconds(3600));
  Pass(milliseconds(100));
  EXPECT_EQ(Now() - start_, milliseconds(200));
}

TEST_F(AwakeClockTest, StandsWhileWordsWaitToBeHeard) {
  Pass(milliseconds(100));
  for (int i = 0; i < 50; ++i) Pass(milliseconds(100), false);
  Pass(milliseconds(100));
  EXPECT_EQ(Now() - start_, milliseconds(200));
}

}  // namespace
}  // namespace plumbline::server
