// Groups without a spread of rewards that are counted by their reward, without the number of all
// groups ("zero_std/count_0", "zero_std/count_1.0" of slime). Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "base/archive.h"

namespace plumbline::analysis {

class ZeroCounts {
 public:
  // Name of the share that is derived from the counts.
  static constexpr std::string_view kName = "zero_std/count_* of all groups";

  // Returns the reward in "zero_std/count_1.0"; nullopt for other names.
  static std::optional<double> RewardIn(std::string_view op) {
    constexpr std::string_view kCount = "zero_std/count_";
    const size_t at = op.rfind(kCount);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string text(op.substr(at + kCount.size()));
    char* end = nullptr;
    const double reward = std::strtod(text.c_str(), &end);
    const bool whole = !text.empty() && end == text.c_str() + text.size();
    return whole && std::isfinite(reward) ? std::optional(reward) : std::nullopt;
  }

  // Takes a count, or the mean reward, of the current step.
  void Count(double reward, double count) {
    if (!(count >= 0) || !std::isfinite(count)) return;
    groups_ += count;
    sum_ += reward * count;
    counted_ = true;
  }
  void Reward(double mean) { mean_ = mean; }
  // Ends the step. Returns 1 if no group has a spread: the counted groups alone give the mean
  // reward, and there were never more. Returns 0 if some groups have one; nullopt if nothing was
  // counted.
  std::optional<double> Close() {
    constexpr double kRounded = 1e-6;
    const bool counted = counted_, gives = std::fabs(mean_ * groups_ - sum_) <= kRounded * groups_;
    most_ = std::max(most_, groups_);
    const bool all = gives && groups_ > 0 && groups_ == most_;
    groups_ = sum_ = 0;
    mean_ = NAN;
    counted_ = false;
    if (!counted) return std::nullopt;
    return all ? 1.0 : 0.0;
  }

  // groups_, sum_, mean_ and counted_ belong to one step and are not stored.
  void Persist(Archive& a) { a(most_); }

 private:
  double groups_ = 0, sum_ = 0, mean_ = NAN, most_ = 0;
  bool counted_ = false;
};

}  // namespace plumbline::analysis
