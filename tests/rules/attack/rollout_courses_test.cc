// Attack on the course and the cause of a drift: the report states the worst and the newest look,
// the steps of a fault that was repaired, and the right cause. A few seeds each; forty if
// PLUMB_LONG=1.
#include "tests/rules/attack/rollout_courses.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "rules/engine/report.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::CourseFamilies;
using testing::CourseFamily;
using testing::VerdictsOn;

int Seeds() { return std::getenv("PLUMB_LONG") != nullptr ? 40 : 3; }

std::vector<v1::Finding> Reported(const testing::RolloutSpec& spec) {
  Report report;
  for (const v1::Verdict& v : VerdictsOn({RolloutRun(spec)}, {.rules = {"drift/*"}})) report.Add(v);
  std::vector<v1::Finding> out;
  for (const v1::Finding* f : report.findings()) out.push_back(*f);
  return out;
}

bool Has(const v1::Finding& f, const std::string& words) {
  return f.explanation().find(words) != std::string::npos;
}

struct Outcome {
  std::string wrong;     // what is wrong with the findings, or ""
  bool unknown = false;  // no finding names the cause
};

// A cause that is neither the right one nor "unknown" is wrong, whatever rule names it.
Outcome Judge(const CourseFamily& family, const std::vector<v1::Finding>& findings) {
  std::string seen;
  bool named = false, unknown = false, accused = false, steps = true;
  for (const v1::Finding& f : findings) {
    if (f.level() < v1::LEVEL_WARNING) continue;
    seen += "\n" + f.rule() + "=" + f.cause().id() + " steps " +
            std::to_string(f.site().step_first()) + " to " + std::to_string(f.site().step_last()) +
            " (" + f.explanation() + ")";
    const bool unsure = f.cause().id().empty() || f.cause().id() == "unknown";
    const bool right = family.cause.empty() || f.cause().id() == family.cause;
    accused |= !unsure && !right;
    if (!f.rule().starts_with(family.rule)) continue;
    steps &= (family.first < 0 || std::abs(f.site().step_first() - family.first) <= 2) &&
             (family.last < 0 || std::abs(f.site().step_last() - family.last) <= 2);
    named |= right && Has(f, family.words);
    unknown |= unsure && family.unknown_share > 0 && Has(f, family.unknown_words);
  }
  if (family.rule.empty()) return {seen, false};
  if (named && steps && !accused) return {"", false};
  if (unknown && steps && !accused) return {"", true};
  return {seen.empty() ? " nothing" : seen, false};
}

TEST(RolloutCourses, EachIsReportedWithItsStepsAndItsCause) {
  for (const CourseFamily& family : CourseFamilies()) {
    int right = 0, unknown = 0;
    for (int seed = 1; seed <= Seeds(); ++seed) {
      const Outcome outcome = Judge(family, Reported(family.make(seed)));
      right += outcome.wrong.empty() && !outcome.unknown;
      unknown += outcome.unknown;
      EXPECT_EQ(outcome.wrong, "") << family.name << ", seed " << seed;
    }
    // Three runs are few: one more may be unknown.
    EXPECT_LE(unknown, family.unknown_share * Seeds() + (family.unknown_share > 0)) << family.name;
    std::printf("%-34s named in %d, unknown in %d of %d\n", family.name.c_str(), right, unknown,
                Seeds());
  }
}

}  // namespace
}  // namespace plumbline::rules
