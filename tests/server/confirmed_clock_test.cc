// A clock that is set ahead, for one call or permanently.
#include "server/process/confirmed_clock.h"

#include <gtest/gtest.h>

namespace plumbline::server {
namespace {

constexpr int64_t kSecond = 1'000'000'000, kDay = 86400 * kSecond;

class ConfirmedClockTest : public ::testing::Test {
 protected:
  // Returns the clock's time, less its beginning.
  int64_t At(int64_t elapsed, int64_t ahead = 0) {
    elapsed_ = elapsed;
    ahead_ = ahead;
    return clock_.Now() - 1000 * kDay;
  }
  int64_t elapsed_ = 0, ahead_ = 0;
  ConfirmedClock clock_{[this] { return 1000 * kDay + elapsed_ + ahead_; },
                        [this] { return elapsed_; }};
};

TEST_F(ConfirmedClockTest, FollowsAClockThatGoes) {
  EXPECT_EQ(At(0), 0);
  EXPECT_EQ(At(30 * kSecond), 30 * kSecond);
  EXPECT_EQ(At(40 * kDay), 40 * kDay) << "after a long time, or a sleep of the host";
  EXPECT_EQ(At(40 * kDay, 50 * kSecond), 40 * kDay + 50 * kSecond) << "a step of under a minute";
}

TEST_F(ConfirmedClockTest, ThreeDaysAheadForOneLookAreNotBelieved) {
  EXPECT_EQ(At(30 * kSecond, 3 * kDay), 30 * kSecond);
  EXPECT_EQ(At(60 * kSecond), 60 * kSecond);
  EXPECT_EQ(At(10000 * kSecond, 3 * kDay), 10000 * kSecond) << "again, much later: the first look";
}

TEST_F(ConfirmedClockTest, AtASecondLookAMinuteLaterTheyAre) {
  EXPECT_EQ(At(30 * kSecond, 3 * kDay), 30 * kSecond);
  EXPECT_EQ(At(31 * kSecond, 3 * kDay), 31 * kSecond) << "too soon";
  EXPECT_EQ(At(90 * kSecond, 3 * kDay + kSecond), 3 * kDay + 91 * kSecond);
  EXPECT_EQ(At(91 * kSecond, 3 * kDay), 3 * kDay + 91 * kSecond);
}

TEST_F(ConfirmedClockTest, AnotherJumpIsAFirstLook) {
  EXPECT_EQ(At(30 * kSecond, 3 * kDay), 30 * kSecond);
  EXPECT_EQ(At(120 * kSecond, 9 * kDay), 120 * kSecond);
  EXPECT_EQ(At(180 * kSecond, 9 * kDay), 9 * kDay + 180 * kSecond);
}

TEST_F(ConfirmedClockTest, OneThatIsSetBackIsBelieved) {
  EXPECT_EQ(At(30 * kSecond, -3 * kDay), 30 * kSecond - 3 * kDay);
  EXPECT_EQ(At(40 * kSecond), 40 * kSecond - 3 * kDay) << "forward again: at a second look";
  EXPECT_EQ(At(100 * kSecond), 100 * kSecond);
}

}  // namespace
}  // namespace plumbline::server
