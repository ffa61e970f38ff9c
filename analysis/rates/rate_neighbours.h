// Evidence of a log's other scalars on a rate that is 0 in all rows: the number of printed digits,
// and whether the loss falls or the reward rises. Kept until a rate above 0 is seen. Not
// thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "base/archive.h"

namespace plumbline::analysis {

class RateNeighbours {
 public:
  static bool IsOne(SeriesRole role) {
    return role == SeriesRole::kLoss || role == SeriesRole::kGradientNorm ||
           role == SeriesRole::kReward;
  }
  // Takes the first value of a step of a loss, of a gradient norm, or of the first series of a
  // reward. Others are ignored.
  void Take(const SiteStep& step, SeriesRole role);
  // Ends the collection, because a rate above 0 was seen.
  void Done() { done_ = true; }
  bool done() const { return done_; }
  // True if some values have at least 9 digits, as programs print them without rounding.
  bool whole_digits() const { return digits_ >= 9; }
  uint32_t digits() const { return digits_; }
  // True if the training loss falls, or the reward rises, beyond its noise: some rate is above 0.
  bool Learns() const;
  // True if it stays where it began (health/not-learning).
  bool LossIsFlat() const { return loss_.LookForLearning().flat; }

  void Persist(Archive& a) { a(digits_, looked_, loss_, done_, reward_, reward_op_); }

 private:
  static constexpr uint64_t kLooked = 256;  // values whose digits are counted
  uint32_t digits_ = 0;                     // the most digits of any value
  uint64_t looked_ = 0;
  Stall loss_;
  Stall reward_;  // of the negated reward
  std::string reward_op_;
  bool done_ = false;
};

}  // namespace plumbline::analysis
