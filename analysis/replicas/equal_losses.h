// Ranks whose losses are the same bits, step after step, while they change from step to step.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::rules {

// One series of losses. The ranks fall into classes: of one class are those that were equal in all
// steps so far. Once every rank stands alone it begins anew; so it does with another set of ranks,
// another attempt, and where a second of what is needed passed without enough different values.
class EqualLosses {
 public:
  static constexpr uint64_t kSteps = 64;    // equal in each
  static constexpr uint64_t kChanges = 32;  // of these, another value than in the step before
  static constexpr size_t kValues = 16;     // different values: bf16 has few

  // A step's values: the last one of each rank counts; steps with one that is no number do not.
  // True: enough is known of some ranks.
  bool Take(const SiteStep& step);

  // The lowest rank of its class; the rank itself where it is not known.
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
  std::set<double> values_;          // of the ranks that share a class, the first few
};

}  // namespace plumbline::rules
