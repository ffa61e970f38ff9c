// Counts the steps of each axis of a log on its own: "rollout/step" and "train/step". Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/trainer_log/step_count.h"

namespace plumbline::audit {

class AxisCounts {
 public:
  // Returns the count of an axis, "rollout" for "rollout/step". Beyond kMost axes, returns that of
  // the first one.
  StepCount* Of(std::string_view axis) {
    const auto known = counts_.find(axis);
    if (known != counts_.end()) return &known->second;
    if (counts_.size() == kMost) return &counts_.begin()->second;
    return &counts_.emplace(std::string(axis), StepCount()).first->second;
  }
  // True if the log has an axis with a name.
  bool any() const { return !counts_.empty(); }
  // Returns true if the steps of a series are those of `axis`, the one that it had first. The steps
  // of two axes in one series would fall.
  bool IsHome(uint32_t column, std::string_view axis) {
    if (column == UINT32_MAX) return true;
    if (column >= homes_.size()) homes_.resize(column + 1, nullptr);
    const StepCount* const count = axis.empty() ? &unnamed_ : Of(axis);
    if (homes_[column] == nullptr) homes_[column] = count;
    return homes_[column] == count;
  }
  // True for an axis that is not the training's, in a log that also has the training's.
  bool IsOther(std::string_view axis) {
    const bool other = !axis.empty() && !axis.starts_with("train");
    trained_ |= !other;
    return other && trained_;
  }
  // Returns the names of the axes, "rollout, train"; "" if there are not several.
  std::string Names() const {
    std::string names;
    for (const auto& [axis, count] : counts_) names += (names.empty() ? "" : ", ") + axis;
    return counts_.size() > 1 ? names : "";
  }

 private:
  static constexpr size_t kMost = 16;
  std::map<std::string, StepCount, std::less<>> counts_;
  StepCount unnamed_;                    // stands for steps without a subject
  std::vector<const StepCount*> homes_;  // by column
  bool trained_ = false;
};

}  // namespace plumbline::audit
