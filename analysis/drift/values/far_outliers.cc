#include "analysis/drift/values/far_outliers.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {

void FarOutliers::Add(double d) {
  static const double kFar = std::log(100.0), kApart = std::log(2.0);
  const double size = std::fabs(d);
  const bool first = open_.tokens++ < kFirst;
  if (size > kFar) {
    ++open_.far;
    open_.far_first += first;
  } else if (size > kApart) {
    ++open_.apart;
  }
}

void FarOutliers::EndSequence() {
  if (open_.far > 0) {
    total_.tokens += open_.tokens;
    total_.apart += open_.apart;
    total_.far += open_.far;
    total_.far_first += open_.far_first;
    share_ += static_cast<double>(open_.far) * static_cast<double>(std::min(open_.tokens, kFirst)) /
              static_cast<double>(open_.tokens);
  }
  open_ = Counts();
}

bool FarOutliers::OthersAgree() const {
  constexpr uint64_t kOfOthers = 3;
  constexpr double kTimesExpected = 2;
  if (total_.far == 0 || kOfOthers * total_.apart > total_.tokens - total_.far) return false;
  const auto first = static_cast<double>(total_.far_first);
  return !(2 * first > static_cast<double>(total_.far) && first > kTimesExpected * share_);
}

}  // namespace plumbline::analysis
