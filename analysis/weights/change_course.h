// Measures how far weights move from checkpoint to checkpoint, compared with the run's other
// weights.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"

namespace plumbline::analysis {

// One weight of one rank: its sampled elements.
struct ChangeCourse {
  std::vector<float> last;
  uint64_t which = 0;  // a hash of their indices
  uint64_t intervals = 0;
  int side = 0;           // newest intervals: far above (1) or far below (-1) the others
  uint64_t adjacent = 0;  // number of consecutive intervals on that side
  int64_t step = 0;       // of `last`
  int64_t next_to_first = 0;
  double log_ratio = 0;  // log10 of |change| / |weight| in the newest interval
  bool rated = false;    // divided by the rate of its parameter group
  bool reported = false;
  void Persist(Archive& a) {
    a(last, which, intervals, side, adjacent, step, next_to_first, log_ratio, rated, reported);
  }
};

// The newest interval of one rank, for display.
struct ChangesShown {
  uint64_t weights = 0, unchanged = 0, intervals = 0;
  double median = 0, low = 0, high = 0;  // log10 of |change| / |weight|
  std::string lowest, highest;
  int64_t step_first = 0, step_last = 0;
  bool reported = false;  // a differing weight was reported
  void Persist(Archive& a) {
    a(weights, unchanged, intervals, median, low, high, lowest, highest, step_first, step_last,
      reported);
  }
};

// Weights with at least two axes; 4 bytes per sampled element. Uses evidence of role "weight" whose
// samples have the same elements in each step, as those of checkpoints do.
class ChangeCourses {
 public:
  static constexpr uint64_t kIntervals = 3;
  static constexpr size_t kFewestWeights = 8;  // needed for a median
  static constexpr double kDecades = 3;

  static bool ReadsScalar(const v1::Site& site) { return site.op() == "held"; }
  void Take(const SiteStep& step);
  void Close(const StepEnd& step, VerdictSink& out);
  void Rest(VerdictSink& out) const;

  // Between steps open_ is empty.
  void Persist(Archive& a) { a(courses_, shown_); }

 private:
  using Key = std::tuple<v1::Role, uint32_t, std::string>;  // rank, layer
  struct Open {
    std::vector<double> values;
    uint64_t which = 0;
    bool poisoned = false;
    std::optional<double> rate;
  };
  // One weight's change since the previous checkpoint.
  struct Way {
    const Key* key = nullptr;
    ChangeCourse* course = nullptr;
    double log_ratio = 0;  // for display
    double compared = 0;   // divided by the rate, if every weight has one
  };

  void CloseRank(const StepEnd& step, uint32_t rank, std::vector<Way> ways, uint64_t unchanged,
                 VerdictSink& out);
  static v1::Verdict Found(const Way& way, double median, size_t weights);

  std::map<Key, ChangeCourse> courses_;
  std::map<std::pair<v1::Role, uint32_t>, ChangesShown> shown_;
  std::map<std::pair<uint32_t, std::string>, Open> open_;  // of this step
};

}  // namespace plumbline::analysis
