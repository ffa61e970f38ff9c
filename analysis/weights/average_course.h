// Moving averages of weights that are stored in checkpoints along with the weights: tests whether
// they follow.
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
#include "base/dtype.h"

namespace plumbline::analysis {

// One average of one rank: its sampled elements. An element is due if an average that follows would
// have moved by at least one unit in its last place: its weight was on one side of it in all
// checkpoints, by at least `least`, and (1 - decay^n) least is at least that unit.
struct AverageCourse {
  DType dtype = DType::kUnspecified;
  std::vector<float> last;
  std::vector<float> least;    // smallest |weight - average|, with its sign; 0 if it changed sides
  std::vector<uint8_t> moved;  // true if it ever moved
  uint64_t checkpoints = 0;
  uint64_t poisoned = 0;
  int64_t step_first = 0, step_last = 0;
  double updates_first = 0, updates_last = 0;  // optimizer steps, or steps if those are not known
  bool reported = false;
  void Persist(Archive& a) {
    a(dtype, last, least, moved, checkpoints, poisoned, step_first, step_last, updates_first,
      updates_last, reported);
  }
};

// Keeps 9 bytes per sampled element. For checkpoints only: the op is "average", the weight's is
// "weight".
class AverageCourses {
 public:
  static constexpr uint64_t kCheckpoints = 3;

  // `elements` is the number of elements that must be due. `share` is the largest share of these
  // that may have moved. `decay` is that of the slowest supported average.
  AverageCourses(size_t elements, double share, double decay)
      : elements_(elements), share_(share), decay_(decay) {}

  static bool ReadsScalar(const v1::Site& site);
  void Take(const SiteStep& step);
  void Close(const StepEnd& step, VerdictSink& out);
  void Rest(VerdictSink& out) const;

  // Between steps open_ and optimizer_step_ are empty.
  void Persist(Archive& a) { a(courses_); }

 private:
  using Key = std::tuple<v1::Role, uint32_t, std::string>;  // rank, layer
  struct Open : AveragePair {
    bool poisoned = false;
  };
  struct Counts {
    uint64_t moved = 0;  // elements that moved
    uint64_t due = 0, due_moved = 0;
    std::optional<size_t> shown;  // an element that was due and did not move
  };

  void Compare(const StepEnd& step, const Open& open, AverageCourse& course) const;
  Counts Count(const AverageCourse& course) const;
  v1::Verdict Found(const AverageCourse& course, const Counts& counts) const;
  v1::Verdict Judge(const AverageCourse& course) const;
  bool Stalls(const AverageCourse& course, const Counts& counts) const;

  size_t elements_;
  double share_;
  double decay_;
  std::map<Key, AverageCourse> courses_;
  std::map<std::pair<uint32_t, std::string>, Open> open_;  // of this step
  std::optional<double> optimizer_step_;                   // of this step
};

}  // namespace plumbline::analysis
