// Detects a level that has risen and stays: the newest block of points is above the best earlier
// block by more than noise, and the points since then rise (specs health: drift of a loss). In
// addition to the spec, corrects for noise that is correlated between points: differences of
// neighbours underestimate it, and a block of it has fewer independent points.
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

namespace plumbline::analysis {

class Riser {
 public:
  explicit Riser(bool linear = false) : linear_(linear) {}

  // Takes the next point of the history. Returns a rise at a tenth and at a third. Returns a rise
  // again only after the level has come back to half a tenth above the best. If that happened at
  // the newest point, fell() is true.
  std::optional<Rise> Take(int64_t step, double y);
  bool fell() const { return fell_; }
  // Returns the current state: the level, the best level and their places.
  Rise Stand(int64_t step) const;
  // Returns the median of the newest block of 8 to 64 points. If there are fewer than 8, returns
  // NaN.
  double level() const { return count_ < kFewest ? NAN : At(levels_, count_ - 1); }
  bool risen() const { return reported_ > 0; }
  // Returns the number of points up to the end of the best block. If there is none yet, returns 0.
  uint64_t best_at() const { return best_at_; }

  // window_ is recomputed. fell_ is read after each Take, before the state is stored.
  void Persist(Archive& a);

 private:
  static constexpr uint64_t kFewest = 8, kRing = 512;
  static constexpr uint64_t kBegin = 48;  // number of points; before, blocks of 8 are only noise
  // If the level is around 0: as many points as are needed to distinguish noise from a lasting
  // level.
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
  Ring levels_;           // level of the block that ends at each point
  uint64_t best_at_ = 0;  // number of points up to the end of the best block
  double best_ = 0;
  uint64_t best_block_ = 0;
  int64_t best_step_ = 0;
  // Sigma before the end of the best block, from differences of neighbours; < 0 if not known yet.
  double near_ = -1;
  double apart_ = 0;        // sigma from points two blocks apart
  BlockMedians since_;      // medians of the points since the best block; used only beyond the ring
  uint64_t next_look_ = 0;  // number of points since the best block at which to test next
  uint8_t reported_ = 0;    // last reported rise: 1 for a tenth, 2 for a third
  double reported_sigma_ = 0;
  bool fell_ = false;    // true if the newest point ended a rise
  SortedWindow window_;  // the newest block
};

}  // namespace plumbline::analysis
