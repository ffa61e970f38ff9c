// Tests precision/gradient-completeness: the planted faults are proved at their parameter and rank,
// and trainers that change gradients on purpose are not accused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/rules/support/applied_gradients.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::AppliedGradients;
using testing::AppliedSpec;
using testing::Verdicts;

constexpr char kRule[] = "precision/gradient-completeness";

Verdicts Judge(const AppliedSpec& spec) {
  return testing::VerdictsOf(kRule, {AppliedGradients(spec)});
}

int Seeds(int brief) { return std::getenv("PLUMB_LONG") != nullptr ? 500 : brief; }

// Returns the causes of the findings, each with its site.
std::vector<std::string> Causes(const Verdicts& verdicts) {
  std::vector<std::string> causes;
  for (const v1::Verdict& verdict : verdicts) {
    if (verdict.kind() != v1::Verdict::KIND_FINDING) continue;
    causes.push_back(verdict.finding().cause().id() + " " + verdict.site().layer());
  }
  return causes;
}

// Worlds, dtypes, likeness of the ranks' data and weights, by seed.
AppliedSpec Varied(const std::string& fault, uint64_t seed) {
  static constexpr int kRanks[] = {2, 3, 4, 8, 16};
  AppliedSpec spec{.fault = fault, .seed = seed};
  spec.ranks = kRanks[seed % 5];
  spec.parameters = 5 + static_cast<int>(seed % 7);
  spec.alike = 0.3 * static_cast<double>(seed % 4);
  spec.clip = seed % 3 == 0 ? 0.0173 : 1;
  spec.tokens = seed % 2 == 1;
  // In 16 bits the sums of many ranks err by more than one of them adds.
  if (spec.ranks <= 4 && seed % 6 == 1) spec.sum = DType::kBF16;
  if (spec.ranks <= 4 && seed % 6 == 2) spec.sum = spec.dtype = DType::kBF16;
  spec.rank = static_cast<int>(seed / 5 % static_cast<uint64_t>(spec.ranks));
  spec.parameter = static_cast<int>(seed % 5);
  return spec;
}

// Of 500 of each fault at least 475 are found (another parameter's gradient: 450), and none at
// another parameter or with another cause.
TEST(GradientCompleteness, FindsEachFault) {
  const std::map<std::string, std::string> faults = {{"left-out", "rank-left-out"},
                                                     {"left-out-shared", "rank-left-out"},
                                                     {"doubled", "rank-doubled"},
                                                     {"scaled", "scaled-by-ranks"},
                                                     {"other", "other-parameter"}};
  for (const auto& [fault, cause] : faults) {
    int found = 0;
    const int seeds = Seeds(30);
    for (int seed = 0; seed < seeds; ++seed) {
      const AppliedSpec spec = Varied(fault, static_cast<uint64_t>(seed));
      const Verdicts verdicts = Judge(spec);
      const std::vector<std::string> causes = Causes(verdicts);
      if (causes.empty()) continue;
      const std::string expected = cause + " layers." + std::to_string(spec.parameter) + ".weight";
      // A rank that is left out of two ranks, and shares its weight, leaves the other one alone.
      ASSERT_EQ(causes, std::vector<std::string>{expected}) << fault << " " << seed;
      EXPECT_LE(verdicts[0].site().step_first(), 1);
      ++found;
    }
    // Sums of 16 bits hide the gradient of one rank of another parameter more often.
    EXPECT_GE(found, seeds * (fault == "other" ? 90 : 95) / 100) << fault;
    RecordProperty(fault, found);
  }
}

TEST(GradientCompleteness, FindsRanksThatKeepTheirOwn) {
  for (int seed = 0; seed < Seeds(30); ++seed) {
    AppliedSpec spec = Varied("not-summed", static_cast<uint64_t>(seed));
    const std::vector<std::string> causes = Causes(Judge(spec));
    ASSERT_EQ(causes.size(), 1u) << seed;
    EXPECT_EQ(causes[0].substr(0, 10), "not-summed");
    spec.declared = false;
    EXPECT_TRUE(Causes(Judge(spec)).empty()) << "local updates are a way to train";
  }
}

// Trainers that change gradients, and evidence that does not suffice, are never accused.
TEST(GradientCompleteness, AccusesNoInnocent) {
  for (const char* healthy :
       {"", "masked", "clamped", "decay", "clip-each", "halved", "noise", "local", "compressed"}) {
    for (int seed = 0; seed < Seeds(20); ++seed) {
      AppliedSpec spec = Varied(healthy, static_cast<uint64_t>(seed));
      spec.declared = std::string(healthy) != "local";
      if (seed % 7 == 3) spec.absent_rank = 0;
      if (seed % 7 == 4) spec.twins = 2;
      if (seed % 7 == 5) spec.samples = 12;
      const std::vector<std::string> causes = Causes(Judge(spec));
      EXPECT_TRUE(causes.empty()) << healthy << " " << seed << " " << causes[0];
    }
  }
}

TEST(GradientCompleteness, HealthyRunsPass) {
  for (int seed = 0; seed < 20; ++seed) {
    const AppliedSpec spec = Varied("", static_cast<uint64_t>(seed));
    const Verdicts verdicts = Judge(spec);
    ASSERT_EQ(verdicts.size(), 1u) << seed << " " << verdicts[0].reason();
    EXPECT_EQ(testing::Outcome(verdicts[0]), "pass") << verdicts[0].reason();
  }
}

// On many ranks the one parameter that none sums has as many applied gradients as ranks.
TEST(GradientCompleteness, OneParameterThatIsNotSummed) {
  for (const int ranks : {2, 4, 8, 16}) {
    const Verdicts verdicts = Judge({.ranks = ranks, .fault = "one-not-summed"});
    ASSERT_EQ(Causes(verdicts), std::vector<std::string>{"not-summed layers.2.weight"}) << ranks;
  }
}

TEST(GradientCompleteness, OneRecordOfAllRanks) {
  AppliedSpec spec{.fault = "left-out", .whole = true};
  EXPECT_EQ(Causes(Judge(spec)), std::vector<std::string>{"rank-left-out layers.2.weight"});
  spec.fault = "";
  EXPECT_EQ(testing::Outcome(Judge(spec).back()), "pass");
}

TEST(GradientCompleteness, TwoStepsAreNeeded) {
  AppliedSpec spec{.fault = "left-out", .first = 1, .last = 1};
  EXPECT_TRUE(Causes(Judge(spec)).empty());
  spec.last = 2;
  const Verdicts verdicts = Judge(spec);
  ASSERT_EQ(Causes(verdicts).size(), 1u);
  EXPECT_EQ(verdicts[0].site().step_first(), 1);
}

TEST(GradientCompleteness, PoisonAndFewElements) {
  AppliedSpec spec{.poison = "all"};
  EXPECT_EQ(testing::Outcome(Judge(spec).back()), "poisoned");
  spec.poison = "one";
  const Verdicts one = Judge(spec);
  ASSERT_EQ(one.size(), 2u);
  EXPECT_EQ(testing::Outcome(one[0]), "poisoned");
  EXPECT_EQ(testing::Outcome(one[1]), "pass");
  AppliedSpec few{.ranks = 4, .samples = 5};
  EXPECT_EQ(testing::Outcome(Judge(few).back()), "few-elements");
  few.samples = 6;
  EXPECT_EQ(testing::Outcome(Judge(few).back()), "pass");
}

}  // namespace
}  // namespace plumbline::rules
