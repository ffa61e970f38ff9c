// What the other scalars of a log say of a rate that reads 0 in all rows: how many digits they are
// printed with, and whether the loss falls. Kept until a rate above 0 is seen. Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>

#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "base/archive.h"

namespace plumbline::rules {

class RateNeighbours {
 public:
  static bool IsOne(SeriesRole role) {
    return role == SeriesRole::kLoss || role == SeriesRole::kGradientNorm;
  }
  // The first value of a loss's or a gradient norm's step; others say nothing.
  void Take(const SiteStep& step, SeriesRole role);
  // A rate above 0 was seen: nothing more is asked.
  void Done() { done_ = true; }
  bool done() const { return done_; }
  // Some are printed with 9 digits or more, as programs print what they do not round.
  bool whole_digits() const { return digits_ >= 9; }
  uint32_t digits() const { return digits_; }
  // The training loss falls beyond its noise: some rate is above 0.
  bool LossFalls() const;
  // It stays where it began (health/not-learning).
  bool LossIsFlat() const { return loss_.LookForLearning().flat; }

  void Persist(Archive& a) { a(digits_, looked_, loss_, done_); }

 private:
  static constexpr uint64_t kLooked = 256;  // values whose digits are counted
  uint32_t digits_ = 0;                     // the most of any
  uint64_t looked_ = 0;
  Stall loss_;
  bool done_ = false;
};

}  // namespace plumbline::rules
