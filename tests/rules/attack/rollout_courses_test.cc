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

// Returns what is wrong with the findings, or "".
std::string Wrong(const CourseFamily& family, const std::vector<v1::Finding>& findings) {
  std::string seen;
  for (const v1::Finding& f : findings) {
    if (f.level() < v1::LEVEL_WARNING) continue;
    seen += " " + f.rule() + "=" + f.cause().id() + " (" + f.explanation() + ")";
    if (f.rule() != family.rule) continue;
    const bool steps = (family.first < 0 || std::abs(f.site().step_first() - family.first) <= 2) &&
                       (family.last < 0 || std::abs(f.site().step_last() - family.last) <= 2);
    if (!steps) {
      return "steps " + std::to_string(f.site().step_first()) + " to " +
             std::to_string(f.site().step_last()) + seen;
    }
    const bool named = family.cause.empty() || f.cause().id() == family.cause;
    if (named && f.explanation().find(family.words) != std::string::npos) return "";
  }
  if (family.rule.empty() && seen.empty()) return "";
  return seen.empty() ? " nothing" : seen;
}

TEST(RolloutCourses, EachIsReportedWithItsStepsAndItsCause) {
  for (const CourseFamily& family : CourseFamilies()) {
    int right = 0;
    for (int seed = 1; seed <= Seeds(); ++seed) {
      const std::string wrong = Wrong(family, Reported(family.make(seed)));
      right += wrong.empty();
      EXPECT_EQ(wrong, "") << family.name << ", seed " << seed;
    }
    std::printf("%-36s right in %d of %d\n", family.name.c_str(), right, Seeds());
  }
}

}  // namespace
}  // namespace plumbline::rules
