// Tests sides that select by different rules, or that record different kinds of scores. 500
// recordings of each family if PLUMB_LONG=1, otherwise a few.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <string>

#include "tests/rules/attack/seeds.h"
#include "tests/rules/support/rule_pair.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::RulePairSpec;
using testing::SideRule;
using testing::Verdicts;

constexpr char kRule[] = "causality/train-infer-routing";

uint64_t Seeds() { return attack::Seeds(3, 500); }

struct PairFamily {
  const char* name;
  const char* cause;  // of the finding; empty: none of level warning or error
  v1::Level level;
  std::function<void(RulePairSpec&)> set;
};

const SideRule kBias = {.bias = 0.1};
const SideRule kGroups = {.groups = 4, .top_groups = 1};

std::vector<PairFamily> Guilty() {
  return {
      {"bias in training only", "other-bias", v1::LEVEL_ERROR, [](auto& s) { s.train = kBias; }},
      {"bias in inference only", "other-bias", v1::LEVEL_ERROR, [](auto& s) { s.infer = kBias; }},
      {"groups in training only", "other-groups", v1::LEVEL_ERROR,
       [](auto& s) { s.train = kGroups; }},
      {"groups in inference only", "other-groups", v1::LEVEL_ERROR,
       [](auto& s) { s.infer = kGroups; }},
      {"bias and groups in training only", "other-rule", v1::LEVEL_ERROR,
       [](auto& s) { s.train = {.bias = 0.1, .groups = 4, .top_groups = 1}; }},
      {"bias after a softmax, in inference only, scores there", "other-bias", v1::LEVEL_ERROR,
       [](auto& s) {
         s.train.function = v1::SCORE_SOFTMAX;
         s.infer = {.bias = 0.02, .function = v1::SCORE_SOFTMAX, .after_function = true};
       }},
      {"another bias", "other-bias", v1::LEVEL_WARNING,
       [](auto& s) {
         s.train = s.infer = kBias;
         s.infer.bias_seed = 2;
       }},
      {"logits and softmax scores, noise left on", "large-margin-flips", v1::LEVEL_WARNING,
       [](auto& s) {
         s.infer = {.function = v1::SCORE_SOFTMAX, .after_function = true};
         s.extra = 0.3;
       }},
      {"logits and sigmoid scores, noise left on", "large-margin-flips", v1::LEVEL_WARNING,
       [](auto& s) {
         s.infer = {.after_function = true};
         s.extra = 0.3;
       }},
      {"scores that cannot be compared, bias unrecorded, noise", "other-choices", v1::LEVEL_WARNING,
       [](auto& s) {
         s.train = s.infer = kBias;
         s.infer.record_bias = false;
         s.extra = 0.7;
       }},
  };
}

std::vector<PairFamily> Innocent() {
  return {
      {"one bias", "", {}, [](auto& s) { s.train = s.infer = kBias; }},
      {"one group limit", "", {}, [](auto& s) { s.train = s.infer = kGroups; }},
      {"bias not recorded in inference",
       "",
       {},
       [](auto& s) {
         s.train = s.infer = kBias;
         s.infer.record_bias = false;
       }},
      {"bias not recorded in training",
       "",
       {},
       [](auto& s) {
         s.train = s.infer = kBias;
         s.train.record_bias = false;
       }},
      {"small bias not recorded in inference",
       "",
       {},
       [](auto& s) {
         s.train = s.infer = {.bias = 0.003};
         s.infer.record_bias = false;
       }},
      {"small bias within the recorded scores, much noise",
       "",
       {},
       [](auto& s) {
         s.train = s.infer = {.bias = 0.01, .after_function = true};
         s.infer.bias_in_scores = true;
         s.noise = 0.05;
       }},
      {"bias one update old",
       "",
       {},
       [](auto& s) {
         s.train = s.infer = kBias;
         s.infer.bias = 0.1002;
       }},
      {"logits and softmax scores",
       "",
       {},
       [](auto& s) { s.infer = {.function = v1::SCORE_SOFTMAX, .after_function = true}; }},
      {"sigmoid scores and logits", "", {}, [](auto& s) { s.train = {.after_function = true}; }},
      {"logits and scores, one bias",
       "",
       {},
       [](auto& s) {
         s.train = s.infer = kBias;
         s.infer.after_function = true;
       }},
      {"replayed choices",
       "",
       {},
       [](auto& s) {
         s.train = kBias;
         s.replayed = true;
       }},
  };
}

RulePairSpec SpecOf(const PairFamily& family, uint64_t seed) {
  RulePairSpec spec{.seed = seed};
  spec.experts = seed % 3 == 0 ? 16 : seed % 3 == 1 ? 32 : 64;
  spec.top_k = seed % 2 == 0 ? 2 : 4;
  spec.noise = seed % 4 == 0 ? 0.02 : 0.004;
  family.set(spec);
  return spec;
}

TEST(TrainInferRules, SidesThatSelectDifferentlyAreFound) {
  for (const PairFamily& family : Guilty()) {
    uint64_t found = 0;
    for (uint64_t seed = 1; seed <= Seeds(); ++seed) {
      const Verdicts verdicts = testing::VerdictsOf(kRule, RulePair(SpecOf(family, seed)));
      const bool here = testing::Findings(verdicts, kRule, family.cause) == 1 &&
                        testing::Highest(verdicts) == family.level;
      found += here;
      if (!here && Seeds() < 10) ADD_FAILURE() << family.name << ": " << verdicts[0].DebugString();
    }
    std::cout << family.name << ": " << found << " of " << Seeds() << "\n";
    EXPECT_GE(static_cast<double>(found), 0.98 * static_cast<double>(Seeds())) << family.name;
  }
}

TEST(TrainInferRules, SidesThatSelectAlikeAreNotAccused) {
  for (const PairFamily& family : Innocent()) {
    uint64_t notes = 0;
    for (uint64_t seed = 1; seed <= Seeds(); ++seed) {
      const Verdicts verdicts = testing::VerdictsOf(kRule, RulePair(SpecOf(family, seed)));
      notes += testing::Findings(verdicts, kRule) > 0;
      EXPECT_LT(testing::Highest(verdicts), v1::LEVEL_WARNING)
          << family.name << " " << seed << ": " << verdicts[0].DebugString();
      EXPECT_NE(verdicts[0].kind(), v1::Verdict::KIND_INCONCLUSIVE)
          << family.name << ": " << verdicts[0].reason();
    }
    std::cout << family.name << ": " << notes << " notes of " << Seeds() << "\n";
  }
}

}  // namespace
}  // namespace plumbline::rules
