// Does an evaluation rise above its best beyond its noise, while the training loss falls? From the
// fifth evaluation on. Not thread-safe.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/archive.h"

namespace plumbline::rules {

struct OverfitFigures {
  bool known = false;     // from kFewest evaluations on
  bool rises = false;     // the evaluation, beyond its noise
  bool falls = false;     // the training loss since the best evaluation, or it is not known
  bool training = false;  // it is known
  uint64_t evaluations = 0;
  int64_t best_step = 0;        // of the lowest evaluation (a mean of `width` of them)
  int64_t step = 0;             // of the newest
  double best = 0, stands = 0;  // values
  uint64_t width = 1;
  double sigma = 0;  // of an evaluation
  double training_best = NAN, training_now = NAN;

  bool overfits() const { return rises && falls; }
  double share() const { return stands / best - 1; }
};

class OverfitWatch {
 public:
  static constexpr uint64_t kFewest = 5;

  // `training`: the mean training loss since the evaluation before; NaN: not known. Steps ascend;
  // an earlier one begins a new attempt, and what came from it on is forgotten.
  void Take(int64_t step, double value, double training);
  OverfitFigures Look() const;
  // Each of the first 64, then every thirtieth part more.
  bool IsDue() const {
    if (count_ < kFewest) return false;
    return count_ <= 64 || count_ % (std::bit_floor(count_) / 32) == 0;
  }

  void Persist(Archive& a) { a(kept_, stride_, open_, count_); }

 private:
  static constexpr size_t kMost = 256;  // kept; then two become one
  struct Kept {
    int64_t step = 0;
    double value = 0, training = NAN;
    uint32_t of = 0;  // evaluations
    void Persist(Archive& a) { a(step, value, training, of); }
  };
  static void Merge(const Kept& more, Kept* into);

  std::vector<Kept> kept_;
  uint64_t stride_ = 1;  // evaluations of each
  Kept open_;            // the newest, not full yet
  uint64_t count_ = 0;
};

}  // namespace plumbline::rules
