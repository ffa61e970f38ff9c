// What the optimizer's and the schedule's state of a checkpoint tell beside those of the one before
// it: the verdicts of health/optimizer-state.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"

namespace plumbline::rules {

inline constexpr char kOptimizerStep[] = "optimizer.step";  // the largest of a parameter's
inline constexpr char kSchedulerStep[] = "scheduler.step";  // last_epoch

// What one checkpoint of one rank says.
struct StateCounts {
  int64_t step = 0;
  std::optional<double> optimizer, scheduler;
  double parameters = 0;          // that the optimizer's groups list
  std::set<std::string> moments;  // parameters with one that is not zero
  std::set<std::string> odd;      // with one that is not finite: nothing is known of it
  std::set<std::string> held;     // parameters that a group lists
  std::map<std::string, std::map<std::string, double>> masters;  // of this step alone
  // Not masters: they are judged in their own step.
  void Persist(Archive& a) { a(step, optimizer, scheduler, parameters, moments, odd, held); }
};

// Each but StateLost of two checkpoints of `rank` that follow one another.

// The optimizer's steps fall.
v1::Verdict StateAnew(uint32_t rank, const StateCounts& before, const StateCounts& now);
// `gone`: not empty, of before.moments. An error where both keep the optimizer's steps.
v1::Verdict MomentsGone(uint32_t rank, const std::vector<std::string>& gone,
                        const StateCounts& before, const StateCounts& now);
// The schedule's steps fall; both have them.
v1::Verdict ScheduleAnew(uint32_t rank, const StateCounts& before, const StateCounts& now);
// The optimizer's steps are those since the checkpoint of step `lost`, which has no state of it.
v1::Verdict StateLost(uint32_t rank, int64_t lost, const StateCounts& now);
// Both have both steps, and `ratio` schedule's steps an optimizer's step became `other`.
v1::Verdict OtherRatio(uint32_t rank, double ratio, double other, const StateCounts& before,
                       const StateCounts& now);

}  // namespace plumbline::rules
