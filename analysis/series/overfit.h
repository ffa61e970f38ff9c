// Detects an evaluation that rises above its best value by more than its noise, while the training
// loss falls. Needs five evaluations. Not thread-safe.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

struct OverfitFigures {
  bool known = false;     // true from kFewest evaluations on
  bool rises = false;     // the evaluation rises by more than its noise
  bool falls = false;     // the training loss fell since the best evaluation, or is not known
  bool training = false;  // the training loss is known
  uint64_t evaluations = 0;
  int64_t best_step = 0;        // step of the lowest evaluation (a mean of `width` evaluations)
  int64_t step = 0;             // step of the newest evaluation
  double best = 0, stands = 0;  // best value, and newest value
  uint64_t width = 1;
  double sigma = 0;  // standard deviation of an evaluation
  double training_best = NAN, training_now = NAN;

  bool overfits() const { return rises && falls; }
  double share() const { return stands / best - 1; }
};

class OverfitWatch {
 public:
  static constexpr uint64_t kFewest = 5;

  // `training` is the mean training loss since the previous evaluation, or NaN if it is not known.
  // Steps ascend. If a step is smaller than one before, a new attempt begins, and evaluations from
  // that step on are discarded.
  void Take(int64_t step, double value, double training);
  OverfitFigures Look() const;
  // True for each of the first 64 evaluations, and then each time their number has grown by about a
  // thirtieth.
  bool IsDue() const {
    if (count_ < kFewest) return false;
    return count_ <= 64 || count_ % (std::bit_floor(count_) / 32) == 0;
  }

  void Persist(Archive& a) { a(kept_, stride_, open_, count_); }

 private:
  static constexpr size_t kMost = 256;  // limit of kept entries; beyond it, pairs are merged
  struct Kept {
    int64_t step = 0;
    double value = 0, training = NAN;
    uint32_t of = 0;  // number of evaluations merged
    void Persist(Archive& a) { a(step, value, training, of); }
  };
  static void Merge(const Kept& more, Kept* into);

  std::vector<Kept> kept_;
  uint64_t stride_ = 1;  // evaluations per entry
  Kept open_;            // the newest entry, which is not full yet
  uint64_t count_ = 0;
};

}  // namespace plumbline::analysis
