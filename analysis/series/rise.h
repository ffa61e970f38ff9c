// Finds that a level has risen and stays: the newest block of points stands above the best block
// before, by more than noise, and the points since rise (specs health: drift of a loss). Beyond the
// definition there, noise that is correlated from point to point counts for what it is: differences
// of neighbours make it too small, and a block of it has fewer points than it seems.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "analysis/series/block_medians.h"
#include "analysis/series/excursion.h"
#include "analysis/series/growing_ring.h"
#include "analysis/series/robust.h"
#include "base/archive.h"

namespace plumbline::rules {

class Riser {
 public:
  explicit Riser(bool linear = false) : linear_(linear) {}

  // The next point of the history. A rise is told at a tenth and at a third, and again only when
  // the level had come back to half a tenth, which fell() says of the newest point.
  std::optional<Rise> Take(int64_t step, double y);
  bool fell() const { return fell_; }
  // As it stands now: level, best and where they are.
  Rise Stand(int64_t step) const;
  // Median of the newest block of 8 to 64 points; NaN before there are 8.
  double level() const { return count_ < kFewest ? NAN : At(levels_, count_ - 1); }
  bool risen() const { return told_ > 0; }
  // Points up to the end of the best block; 0: there is none yet.
  uint64_t best_at() const { return best_at_; }

  // window_ is found again; fell_ is asked for behind each Take, before anything is kept.
  void Persist(Archive& a);

 private:
  static constexpr uint64_t kFewest = 8, kRing = 512;
  static constexpr uint64_t kBegin = 48;  // points: blocks of 8 are noise before
  // Where the level is no measure, as many as may tell noise from what it stays at for long.
  static constexpr uint64_t kBeginAroundZero = kRing;
  using Ring = GrowingRing<double, kRing>;
  static double At(const Ring& ring, uint64_t i) { return ring[i % kRing]; }
  static uint64_t BlockAt(uint64_t count) {
    return std::min<uint64_t>(64, std::max<uint64_t>(kFewest, count / 8));
  }
  void Fill();
  void Best(uint64_t block);
  double Part(double share, double sigma) const;
  double SigmaOf(uint64_t from, uint64_t to, uint64_t lag) const;
  void LookBeforeBest();
  double ErrorOf(double sigma, uint64_t block) const;
  bool RisesSince(double* low) const;
  int64_t OnsetStep(double under) const;

  bool linear_;
  uint64_t count_ = 0;
  Ring points_;
  GrowingRing<int64_t, kRing> steps_;
  Ring levels_;           // L of the block that ends at a point
  uint64_t best_at_ = 0;  // points up to the end of the best block
  double best_ = 0;
  uint64_t best_block_ = 0;
  int64_t best_step_ = 0;
  double near_ = -1;    // sigma before the end of the best block, by neighbours; < 0: not known yet
  double apart_ = 0;    // by points two blocks apart
  BlockMedians since_;  // of the points since; only beyond what the ring holds
  uint64_t next_look_ = 0;  // at so many points since
  uint8_t told_ = 0;        // 1: a tenth, 2: a third
  double told_sigma_ = 0;
  bool fell_ = false;    // of the newest point
  SortedWindow window_;  // the newest block
};

}  // namespace plumbline::rules
