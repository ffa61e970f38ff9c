// Detects ranks whose losses have the same bits, step after step, while they change from step to
// step.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::analysis {

// One series of losses. Ranks that were equal in all steps so far form a class. The comparison
// starts again if no class has two ranks, if the set of ranks or the attempt changes, or after
// twice the needed steps without enough different values.
class EqualLosses {
 public:
  static constexpr uint64_t kSteps = 64;  // steps in which they must be equal
  static constexpr uint64_t kChanges =
      32;                                // of these: steps with another value than the previous one
  static constexpr size_t kValues = 16;  // different values: bf16 has few

  // Takes a step's values. The last value of each rank counts. If one is not finite, the step is
  // ignored. Returns true if enough is known of some ranks.
  bool Take(const SiteStep& step);

  // Returns the lowest rank of its class. If the class is not known, returns the rank itself.
  uint32_t ClassOf(uint32_t rank) const;
  uint64_t steps() const { return steps_; }
  int64_t step_first() const { return step_first_; }

  void Persist(Archive& a) { a(classes_, attempt_, steps_, changes_, step_first_, last_, values_); }

 private:
  std::map<uint32_t, uint32_t> classes_;  // by rank
  uint32_t attempt_ = 0;
  uint64_t steps_ = 0, changes_ = 0;
  int64_t step_first_ = 0;
  std::map<uint32_t, double> last_;  // by rank
  std::set<double> values_;          // first few values of the ranks that share a class
};

}  // namespace plumbline::analysis
