// Tests data shared by rules in a step: created once, per type, and for that step only.
#include "analysis/frame/step_cache.h"

#include <gtest/gtest.h>

#include <memory>

#include "analysis/frame/step.h"
#include "tests/analysis/frame/step_cache_other.h"

namespace plumbline::analysis {
namespace {

struct Sum {
  int value;
};
struct Mean {
  int value;
};

std::shared_ptr<Sum> MakeSum(int value) { return std::make_shared<Sum>(Sum{value}); }

TEST(StepCache, MakesAValueOnceAndOfItsOwnType) {
  const SiteStep step;
  int made = 0;
  const auto sum = [&] { return step.cache.Get<const Sum>([&] { return MakeSum(++made); }); };
  EXPECT_EQ(sum()->value, 1);
  EXPECT_EQ(sum(), sum());
  EXPECT_EQ(step.cache.Get<Mean>([] { return std::make_shared<Mean>(Mean{7}); })->value, 7);
  EXPECT_EQ(sum()->value, 1);
  EXPECT_EQ(made, 1);
}

// As in rules, each in its own file.
struct Shared {
  int value;
};

TEST(StepCache, TypesOfOneNameInTwoFilesAreTwo) {
  const SiteStep step;
  const auto own = [&] {
    return step.cache.Get<Shared>([] { return std::make_shared<Shared>(Shared{3}); })->value;
  };
  EXPECT_EQ(own(), 3);
  EXPECT_EQ(OtherFilesShared(step), "other");
  EXPECT_EQ(own(), 3);
}

TEST(StepCache, WhatMakesAValueMayReadOthers) {
  const SiteStep step;
  const auto mean = step.cache.Get<const Mean>([&] {
    const auto sum = step.cache.Get<const Sum>([] { return MakeSum(12); });
    return std::make_shared<Mean>(Mean{sum->value / 4});
  });
  EXPECT_EQ(mean->value, 3);
  EXPECT_EQ(step.cache.Get<const Sum>([] { return MakeSum(0); })->value, 12);
}

// The engine copies the common part of the sites of a step.
TEST(StepCache, ACopyOfAStepSharesNothing) {
  SiteStep first;
  EXPECT_EQ(first.cache.Get<const Sum>([] { return MakeSum(1); })->value, 1);
  SiteStep second = first;
  EXPECT_EQ(second.cache.Get<const Sum>([] { return MakeSum(2); })->value, 2);
  EXPECT_EQ(first.cache.Get<const Sum>([] { return MakeSum(3); })->value, 1);
  first = second;
  EXPECT_EQ(first.cache.Get<const Sum>([] { return MakeSum(4); })->value, 4);
}

}  // namespace
}  // namespace plumbline::analysis
