#include "audit/readers/scalars/step_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/hash/hash.h"

namespace plumbline::audit {
namespace {

// Evenly apart or not, a list is the vector of its steps.
TEST(StepList, IsTheVectorOfItsSteps) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000; ++round) {
    const size_t size = random() % 12;
    const int64_t apart = static_cast<int64_t>(random() % 5) - 1;
    const size_t odd = random() % 20;  // beyond the list: none is
    std::vector<int64_t> steps;
    StepList list;
    for (size_t i = 0; i < size; ++i) {
      steps.push_back(7 + static_cast<int64_t>(i) * apart + (i == odd ? 1 : 0));
      list.push_back(steps.back());
    }
    ASSERT_EQ(list.size(), steps.size());
    EXPECT_EQ(std::vector<int64_t>(list.begin(), list.end()), steps);
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(list[i], steps[i]);
    if (!std::is_sorted(steps.begin(), steps.end())) continue;
    for (int64_t step = 0; step < 60; ++step) {
      EXPECT_EQ(std::binary_search(list.begin(), list.end(), step),
                std::binary_search(steps.begin(), steps.end(), step));
    }
  }
}

TEST(StepList, EqualIsWhatHoldsTheSameSteps) {
  const auto of = [](const std::vector<int64_t>& steps) {
    StepList list;
    for (const int64_t step : steps) list.push_back(step);
    return list;
  };
  const std::vector<std::vector<int64_t>> all = {
      {},           {0},       {1},       {0, 1},       {0, 2},    {0, 1, 2}, {0, 1, 3},
      {0, 1, 2, 3}, {0, 0, 0}, {2, 1, 0}, {0, 1, 2, 9}, {0, 2, 4}, {5, 5},    {INT64_MAX, 0}};
  for (const auto& a : all) {
    for (const auto& b : all) {
      EXPECT_EQ(of(a) == of(b), a == b);
      if (a != b) continue;
      EXPECT_EQ(absl::HashOf(of(a)), absl::HashOf(of(b)));
    }
  }
}

}  // namespace
}  // namespace plumbline::audit
