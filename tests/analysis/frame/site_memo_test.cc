// Tests that a memo is created once per site number, and never without a number.
#include "analysis/frame/site_memo.h"

#include <gtest/gtest.h>

namespace plumbline::analysis {
namespace {

SiteStep Numbered(uint32_t number) {
  SiteStep step;
  step.number = number;
  return step;
}

TEST(SiteMemo, OnceForEachNumber) {
  SiteMemo<int> memo;
  int made = 0;
  const auto of = [&](uint32_t number) {
    return memo.Of(Numbered(number), [&] { return ++made; });
  };
  EXPECT_EQ(of(3), 1);
  EXPECT_EQ(of(1), 2);
  EXPECT_EQ(of(3), 1);
  EXPECT_EQ(of(1), 2);
  memo.Of(Numbered(3), [] { return 0; }) = 9;
  EXPECT_EQ(of(3), 9);
  EXPECT_EQ(made, 2);
}

TEST(SiteMemo, AnewWhereThereIsNone) {
  SiteMemo<int> memo;
  int made = 0;
  const auto of = [&] { return memo.Of(SiteStep(), [&] { return ++made; }); };
  EXPECT_EQ(of(), 1);
  EXPECT_EQ(of(), 2);
}

}  // namespace
}  // namespace plumbline::analysis
