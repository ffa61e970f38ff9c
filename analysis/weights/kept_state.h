// Compares the optimizer's and the schedule's state of a checkpoint with the previous one: the
// verdicts of health/optimizer-state.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"

namespace plumbline::analysis {

inline constexpr char kOptimizerStep[] = "optimizer.step";  // the largest over the parameters
inline constexpr char kSchedulerStep[] = "scheduler.step";  // last_epoch

// The state of one checkpoint of one rank.
struct StateCounts {
  int64_t step = 0;
  std::optional<double> optimizer, scheduler;
  double parameters = 0;          // number listed by the optimizer's groups
  std::set<std::string> moments;  // parameters with a non-zero moment
  std::set<std::string> odd;   // parameters with a non-finite moment, about which nothing is known
  std::set<std::string> held;  // parameters listed by a group
  std::map<std::string, std::map<std::string, double>> masters;  // of this step only
  std::optional<double> named;  // share of the optimizer's parameters that have names
  // Not masters and named: they are judged in their own step.
  void Persist(Archive& a) { a(step, optimizer, scheduler, parameters, moments, odd, held); }
};

// Each but StateLost of two checkpoints of `rank` that follow one another.

// For falling optimizer steps. If the count is larger than the number of steps since the checkpoint
// before, or if the parameters are others or have no names, the moments may not have restarted at
// zero: a warning.
v1::Verdict StateFell(uint32_t rank, const StateCounts& before, const StateCounts& now);
// `gone` is a non-empty subset of before.moments. If both checkpoints have the optimizer's steps,
// it is an error.
v1::Verdict MomentsGone(uint32_t rank, const std::vector<std::string>& gone,
                        const StateCounts& before, const StateCounts& now);
// For falling schedule steps; both checkpoints have them.
v1::Verdict ScheduleAnew(uint32_t rank, const StateCounts& before, const StateCounts& now);
// The optimizer's steps count from the checkpoint of step `lost`, which has no optimizer state.
v1::Verdict StateLost(uint32_t rank, int64_t lost, const StateCounts& now);
// Both checkpoints have both steps, and `ratio` schedule steps per optimizer step became `other`.
v1::Verdict OtherRatio(uint32_t rank, double ratio, double other, const StateCounts& before,
                       const StateCounts& now);

}  // namespace plumbline::analysis
