#include "rules/words/false_alarm.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rules/words/words.h"

namespace plumbline::rules {
namespace {

// Unit of a measured rate. A rule that is not listed measures per run.
struct RateUnit {
  std::string_view rule;
  const char* unit;
};
constexpr RateUnit kRateUnits[] = {
    {"performance/straggler", "jobs"},      {"performance/idle-comb", "traces"},
    {"performance/memory-creep", "series"}, {"performance/mfu", "series"},
    {"health/overfit", "series"},
};
// The rules for losses measure this rate, and lower ones, per point.
constexpr double kRatePerPoint = 1e-5;

const char* MeasuredUnit(const v1::Finding& finding) {
  if (finding.false_alarm().value() < kRatePerPoint) return "points";
  for (const RateUnit& entry : kRateUnits) {
    if (entry.rule == finding.rule()) return entry.unit;
  }
  return "runs";
}

// Returns a count with at most two significant digits: 833333 as "830,000", 1e19 as "1e+19".
std::string RoundCount(double count) {
  if (!(count < 1e12)) return absl::StrFormat("%.2g", count);
  const double step = std::pow(10.0, std::max(0.0, std::floor(std::log10(count)) - 1));
  std::string digits = absl::StrFormat("%.0f", std::round(count / step) * step);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace

std::string FalseAlarmText(const v1::Finding& finding) {
  if (!finding.has_false_alarm()) return "";
  const std::string& kind = finding.false_alarm().kind();
  const double value = finding.false_alarm().value();
  if (kind == "run-length")
    return absl::StrCat("about 1 false alarm in ", RoundCount(value), " healthy steps");
  if (!(value > 0)) return absl::StrCat("no false alarm, ", kind);
  const std::string one_in = RoundCount(1 / value);
  if (kind == "measured")
    return absl::StrCat("about 1 false alarm in ", one_in, " ", MeasuredUnit(finding),
                        ", measured");
  return absl::StrCat("at most 1 false alarm in ", one_in, " runs");
}

std::string HowSureText(const v1::Finding& finding) {
  const std::string rate = FalseAlarmText(finding);
  const char* meaning = "the threshold is customary; its false alarms were not measured";
  if (finding.strength() == v1::STRENGTH_PROVED) meaning = "the recorded values show it exactly";
  if (finding.strength() == v1::STRENGTH_BOUNDED) meaning = "a proved error bound is exceeded";
  if (finding.strength() == v1::STRENGTH_STATISTICAL)
    meaning = "its rate of false alarms is not stated";
  return absl::StrCat(StrengthName(finding.strength()), ": ", rate.empty() ? meaning : rate);
}

}  // namespace plumbline::rules
