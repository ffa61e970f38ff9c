#include "server/process/log_limit.h"

#include <gtest/gtest.h>

#include <string>

namespace plumbline::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LogLimit, AFloodOfOneKindIsLimitedAndCounted) {
  LogLimit limit;
  LogLimit::Time now{seconds(1000)};
  int written = 0;
  for (int i = 0; i < 28850; ++i) {  // lines in 4 s, as many as a hostile client caused
    now += std::chrono::microseconds(139);
    written += limit.Admit("stream {:016x} ended: {:?}", now) ? 1 : 0;
  }
  EXPECT_GE(written, 50);
  EXPECT_LE(written, 60);
  EXPECT_EQ(limit.left_out(), 28850u - static_cast<uint64_t>(written));
  // Other kinds are not limited by it.
  EXPECT_TRUE(limit.Admit("run {:?}: over", now));
  EXPECT_TRUE(limit.LeftOut(now).empty()) << "not at once, and not with each line";
  const auto stated = limit.LeftOut(now + seconds(11));
  ASSERT_EQ(stated.size(), 1u);
  EXPECT_EQ(stated[0].substr(0, stated[0].find(' ')), std::to_string(28850 - written));
  EXPECT_TRUE(limit.LeftOut(now + seconds(30), true).empty()) << "reported once";
}

TEST(LogLimit, ASlowKindIsNeverHeldUp) {
  LogLimit limit;
  LogLimit::Time now{seconds(1000)};
  for (int i = 0; i < 1000; ++i) {
    now += milliseconds(600);
    ASSERT_TRUE(limit.Admit("slow", now)) << i;
  }
}

// Kinds that a caller could invent share one limit.
TEST(LogLimit, KindsHaveABound) {
  LogLimit limit;
  const LogLimit::Time now{seconds(1000)};
  int written = 0;
  for (int i = 0; i < 100000; ++i) written += limit.Admit("k" + std::to_string(i), now) ? 1 : 0;
  EXPECT_LE(written, static_cast<int>(LogLimit::kMostKinds) + 51);
}

}  // namespace
}  // namespace plumbline::server
