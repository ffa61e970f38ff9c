// Finds the rank that the others wait for, by comparing own times within a cohort.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plumbline::timeline {

// One rank's steps. Seconds; all vectors are by step, and a step has one index on every rank.
struct RankSteps {
  uint32_t rank = 0;
  int64_t cohort = 0;           // its pipeline stage, if known
  std::vector<double> own;      // step minus exposed communication
  std::vector<double> compute;  // U(computation)
  std::vector<double> exposed;  // communication that is not hidden
};

struct Straggler {
  uint32_t rank = 0;
  double slowness = 1;      // s: median over steps of own time / median of the others'
  double steady_share = 0;  // share of steps with more than half of its excess
  double mads = 0;        // above the others, in 1.4826 median absolute deviations; 0 if not tested
  bool computes = false;  // true if computing is at least half of the excess, so it is slow; else
                          // it arrives late
  double own = 0, others = 0;  // medians over steps, seconds
  double exposed = 0, others_exposed = 0;
};

struct Stragglers {
  std::vector<Straggler> culprits;  // by rank
  double largest = 1;               // largest slowness of any rank
  uint32_t largest_rank = 0;
  size_t steps = 0;
  size_t largest_cohort = 0;
  // Ranks that would be culprits, but no rank waits for them: the others wait less than half of the
  // excess. If hosts run ahead of their GPUs, a step's mark shows what the host does.
  std::vector<Straggler> unawaited;
};

// With 12 or more steps, a rank is a culprit if more than half of its excess s - 1 occurs in three
// quarters of the steps, and s >= 4/3, or in a cohort of 16 or more s >= 1.1 and 6 deviations above
// the others. With 5 to 11 steps: 4/3 in every step. With fewer than 5 steps, or a cohort of one,
// there is no culprit. In addition, log s must be at least 4 standard errors of a median of as many
// steps, from the others' scatter between steps (sqrt(pi/2 / steps) x 1.4826 median deviations of
// logarithms; the smaller of that of ratios and that of own times x sqrt(1 + pi/2 / other ranks)).
// So uneven data are not a rank's fault. If a value is not finite or not positive, the step does
// not count for its rank.
Stragglers FindStragglers(const std::vector<RankSteps>& ranks);

}  // namespace plumbline::timeline
