// Attack on the cause of a drift that begins in the middle of a run: the cause is the right one, or
// unknown with words that name it. Twelve seeds each; 240 if PLUMB_LONG=1.
#include "tests/rules/attack/late_onsets.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "rules/engine/report.h"
#include "tests/rules/attack/seeds.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::LateOnset;
using testing::LateOnsets;
using testing::VerdictsOn;

// Returns what is wrong with a finding's cause, or "". Counts the causes.
std::string WrongCause(const LateOnset& family, const v1::Finding& f, attack::Counts* counts) {
  const std::string& cause = f.cause().id();
  const bool unsure = cause.empty() || cause == "unknown";
  const bool hinted = f.explanation().find(family.words) != std::string::npos;
  const bool right = unsure ? hinted : cause == family.cause;
  ++(*counts)[unsure ? (hinted ? "unknown" : "UNHINTED") : cause];
  if (right && !family.cause.empty()) return "";
  return "\n" + f.rule() + "=" + cause + " (" + f.explanation() + ")";
}

TEST(LateOnsets, TheCauseIsRightOrUnknown) {
  for (const LateOnset& family : LateOnsets()) {
    if (!attack::Requested(family.name.c_str())) continue;
    const auto first = static_cast<int>(attack::FirstSeed());
    const auto seeds = static_cast<int>(attack::Seeds(12, 240));
    attack::Counts counts;
    for (int seed = first; seed < first + seeds; ++seed) {
      std::string wrong;
      bool any = false;
      Report report;
      for (const v1::Verdict& v :
           VerdictsOn({RolloutRun(family.make(seed))}, {.rules = {"drift/*"}}))
        report.Add(v);
      for (const v1::Finding* f : report.findings()) {
        if (f->level() < v1::LEVEL_WARNING) continue;
        any = true;
        wrong += WrongCause(family, *f, &counts);
      }
      counts["silent"] += !any;
      EXPECT_EQ(wrong, "") << family.name << ", seed " << seed;
    }
    attack::Print(family.name, counts);
  }
}

}  // namespace
}  // namespace plumbline::rules
