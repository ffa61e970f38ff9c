// Moving averages in checkpoints: is each one updated at all, and is it more than a copy of its
// weights?
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/weights/average_pair.h"

namespace plumbline::analysis {

// One average of one rank.
struct AverageFollow {
  uint64_t average = 0, weight = 0;  // hashes of the sampled elements
  uint64_t checkpoints = 0;
  uint64_t still = 0;    // intervals in which only the weight changed, since it moved last
  uint64_t longest = 0;  // most of these before it moved again
  uint64_t equal = 0;    // consecutive checkpoints in which it equals the weight, with other values
  int64_t step_first = 0, step = 0, still_first = 0;
  void Persist(Archive& a) {
    a(average, weight, checkpoints, still, longest, equal, step_first, step, still_first);
  }
};

class AverageFollows {
 public:
  void Take(const SiteStep& step);
  void Close(const StepEnd& step);
  void Rest(VerdictSink& out) const;

  // Between steps open_ and counts_ are empty.
  void Persist(Archive& a) { a(follows_, counters_); }

 private:
  using Key = std::tuple<v1::Role, uint32_t, std::string>;  // rank, layer

  // Returns true if the counter of updates shows that there were none since the checkpoint before.
  bool AtRest(const StepEnd& step, uint32_t rank);

  std::map<Key, AverageFollow> follows_;
  std::map<std::pair<v1::Role, uint32_t>, double> counters_;      // n_averaged
  std::map<std::pair<uint32_t, std::string>, AveragePair> open_;  // of this step
  std::map<uint32_t, double> counts_;                             // of this step
};

}  // namespace plumbline::analysis
