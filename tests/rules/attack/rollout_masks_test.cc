// Recordings whose tokens are chosen after they were drawn: no error on innocent ones, and guilty
// ones are found. A few seeds each; 2,000 innocent and 500 guilty ones if PLUMB_LONG=1.
#include "tests/rules/attack/rollout_masks.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::ChosenRollout;
using testing::ChosenRollouts;
using testing::Verdicts;
using testing::VerdictsOn;

int Runs(int brief, int whole) { return std::getenv("PLUMB_LONG") != nullptr ? whole : brief; }

Verdicts Judge(v1::Batch batch) { return VerdictsOn({std::move(batch)}, {.rules = {"drift/*"}}); }

// Rejection hides large ratios, so that a size of drift is no accusation; the record and the
// sampler are.
bool Accuses(const v1::Verdict& v) {
  const bool about_record =
      v.rule() == "drift/record-invalid" || v.rule() == "drift/sampler-mismatch";
  return about_record && v.finding().level() >= v1::LEVEL_WARNING;
}

// Returns " rule=cause" of a finding, " rule: reason" otherwise.
std::string Brief(const v1::Verdict& v) {
  if (v.kind() != v1::Verdict::KIND_FINDING)
    return " " + v.rule() + ": " + v.reason().substr(0, 90);
  return " " + v.rule() + "=" + v.finding().cause().id() + " (" + v.finding().explanation() + ")";
}

TEST(RolloutMasks, NoInnocentIsAccused) {
  for (const ChosenRollout& family : ChosenRollouts()) {
    const int runs = Runs(6, 2000);
    int accused = 0;
    std::map<std::string, int> reasons;
    for (int seed = 1; seed <= runs; ++seed) {
      for (const v1::Verdict& v : Judge(family.make(seed, false))) {
        if (v.rule() == "drift/record-invalid" && v.kind() == v1::Verdict::KIND_INCONCLUSIVE)
          ++reasons[v.reason().substr(0, v.reason().find(':'))];
        if (!Accuses(v)) continue;
        ++accused;
        ADD_FAILURE() << family.name << ", seed " << seed << ": " << v.rule() << ", "
                      << v.finding().cause().id() << ": " << v.finding().explanation();
      }
    }
    std::printf("%-40s %d accusations in %d innocent runs", family.name, accused, runs);
    for (const auto& [reason, count] : reasons) std::printf(" %s=%d", reason.c_str(), count);
    std::printf("\n");
  }
}

TEST(RolloutMasks, TheGuiltyAreFound) {
  for (const ChosenRollout& family : ChosenRollouts()) {
    const int runs = Runs(4, 500);
    int found = 0;
    for (int seed = 1; seed <= runs; ++seed) {
      bool accused = false;
      std::string text;
      for (const v1::Verdict& v : Judge(family.make(seed, true))) {
        accused |= Accuses(v);
        text += Brief(v);
      }
      found += accused;
      if (!accused) std::printf("%s, seed %d is missed:%s\n", family.name, seed, text.c_str());
    }
    std::printf("%-40s %d of %d guilty runs found\n", family.name, found, runs);
    EXPECT_GE(4 * found, 3 * runs) << family.name;
  }
}

TEST(RolloutMasks, CopiesAreCountedOnce) {
  for (const ChosenRollout& family : ChosenRollouts()) {
    if (family.name != std::string("copies under other ids")) continue;
    for (const v1::Verdict& v : Judge(family.make(2, false))) {
      if (v.rule() != "drift/record-invalid") continue;
      const auto& details = v.details().fields();
      ASSERT_TRUE(details.contains("copied_sequences")) << v.ShortDebugString();
      EXPECT_EQ(details.at("copied_sequences").number_value(), 7 * 8 * 16);
      EXPECT_EQ(details.at("tokens").number_value(), 8 * 16 * 64);
    }
  }
}

bool NamedCache(const v1::Verdict& v) {
  return v.finding().level() >= v1::LEVEL_WARNING && v.finding().cause().id() == "stale-cache";
}

TEST(RolloutMasks, AStalePrefixIsFound) {
  const int runs = Runs(8, 500);
  int found = 0, accused = 0;
  for (int seed = 1; seed <= runs; ++seed) {
    bool named = false;
    std::string text;
    for (const v1::Verdict& v : Judge(testing::FirstTokensDiffer(seed, true))) {
      named |= NamedCache(v);
      text += Brief(v);
    }
    found += named;
    if (!named) std::printf("stale prefix, seed %d is missed:%s\n", seed, text.c_str());
    for (const v1::Verdict& v : Judge(testing::FirstTokensDiffer(seed, false))) {
      const bool loud = v.finding().level() >= v1::LEVEL_WARNING;
      accused += loud;
      EXPECT_FALSE(loud) << seed << ": " << v.rule() << " " << v.finding().explanation();
    }
  }
  std::printf("a stale prefix: %d of %d found; %d of %d twins accused\n", found, runs, accused,
              runs);
  EXPECT_GE(100 * found, 95 * runs);
}

// The level follows the size; what matters is the name.
TEST(RolloutMasks, AWorkerIsNamedBeforeNoise) {
  const int runs = Runs(8, 500);
  int named = 0, accused = 0;
  for (int seed = 1; seed <= runs; ++seed) {
    bool worker = false;
    for (const v1::Verdict& v : Judge(testing::OneWorkerOfEight(seed, true)))
      worker |= v.finding().cause().id() == "one-worker";
    named += worker;
    for (const v1::Verdict& v : Judge(testing::OneWorkerOfEight(seed, false))) {
      const bool loud =
          v.finding().level() >= v1::LEVEL_WARNING || v.finding().cause().id() == "one-worker";
      accused += loud;
      EXPECT_FALSE(loud) << seed << ": " << v.rule() << " " << v.finding().explanation();
    }
  }
  std::printf("one worker of eight: %d of %d named; %d of %d twins accused\n", named, runs, accused,
              runs);
  EXPECT_GE(100 * named, 95 * runs);
}

}  // namespace
}  // namespace plumbline::rules
