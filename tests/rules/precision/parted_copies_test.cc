// Tests precision/replica-divergence on processes that train one model without a wrapper and
// without any reduction.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::Verdicts;
using testing::VerdictsOf;

constexpr char kReplicas[] = "precision/replica-divergence";

struct Two {
  double before[2] = {7, 7};
  std::vector<std::pair<double, double>> after = {{1, 2}, {3, 4}};  // after steps 3, 7, ...
  int summed = -1;                                                  // rank
};

v1::Batch BatchOfTwo(const Two& two) {
  v1::Batch batch;
  for (uint32_t rank = 0; rank < 2; ++rank) *batch.add_sources() = test::SourceOf("run", rank, 2);
  const auto add = [&](const char* op, int64_t step, double value, uint32_t rank) {
    test::AddScalar(&batch, op, step, value).set_source(rank);
  };
  for (uint32_t rank = 0; rank < 2; ++rank) add("unsummed/before", 3, two.before[rank], rank);
  int64_t step = 3;
  for (const auto& [first, second] : two.after) {
    add("unsummed/after", step, first, 0);
    add("unsummed/after", step, second, 1);
    step = 2 * step + 1;
  }
  if (two.summed >= 0) add("unsummed/summed", step, 1, static_cast<uint32_t>(two.summed));
  return batch;
}

int Found(const Two& two) {
  return testing::Findings(VerdictsOf(kReplicas, {BatchOfTwo(two)}), kReplicas);
}

TEST(PartedCopies, AWarningAtTheFirstStep) {
  const Verdicts verdicts = VerdictsOf(kReplicas, {BatchOfTwo({})});
  ASSERT_EQ(testing::Findings(verdicts, kReplicas), 1);
  for (const v1::Verdict& v : verdicts) {
    if (v.kind() != v1::Verdict::KIND_FINDING) continue;
    EXPECT_EQ(v.finding().level(), v1::LEVEL_WARNING);
    EXPECT_EQ(v.site().step_first(), 3);
    EXPECT_EQ(v.site().step_last(), 7);
    EXPECT_EQ(v.site().ranks_size(), 2);
  }
}

TEST(PartedCopies, OthersAreSilent) {
  EXPECT_EQ(Found({.before = {7, 8}}), 0);           // independent models
  EXPECT_EQ(Found({.after = {{1, 1}, {2, 2}}}), 0);  // still copies
  EXPECT_EQ(Found({.after = {{1, 2}, {3, 3}}}), 0);  // equal again
  EXPECT_EQ(Found({.after = {}}), 0);
  EXPECT_EQ(Found({.summed = 1}), 0);
}

// Tests that NaN is neither equal nor different.
TEST(PartedCopies, NaNStaysSilent) {
  EXPECT_EQ(Found({.before = {NAN, NAN}}), 0);
  EXPECT_EQ(Found({.before = {7, NAN}}), 0);
  EXPECT_EQ(Found({.after = {{1, NAN}, {NAN, 2}}}), 0);
}

}  // namespace
}  // namespace plumbline::rules
