// Detects whether a series still falls, by the slope of ln value against ln n over its newest half.
// end_level.h and learning.h compute other results from its beginning and its block medians.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "analysis/series/block_medians.h"
#include "analysis/series/end_level.h"
#include "analysis/series/learning.h"
#include "base/archive.h"

namespace plumbline::analysis {

struct StallFigures {
  bool known = false;  // true from 500 points on
  // Slope of ln value against ln n, by Theil-Sen over at most 96 block medians.
  double slope = 0;
  double low = 0, high = 0;  // 99 % interval of the slope
  double begin = 0;          // median ln value of the first 16 points
  double newest = 0;         // median ln value of the newest half
  double lowest = 0;         // lowest of at most 96 block medians of the run
  double noise = 0;          // standard error of a block's median, from neighbouring blocks
  uint64_t points = 0;
  int64_t half_step = 0;  // the step where the newest half begins

  bool stalled() const { return known && high >= 0; }
  // True if no block was better than the first 16 points by more than noise.
  bool from_the_beginning() const;
  // True if the newest half is a tenth above the lowest block, by more than noise. Such a series
  // rose, which is not a stall.
  bool rose() const;
};

class Stall {
 public:
  static constexpr uint64_t kFewest = 500;

  // `y` is ln value.
  void Take(int64_t step, double y);
  StallFigures Look() const;
  FallFigures LookForFall() const { return analysis::LookForFall(blocks_, count_); }
  // Returns the standard deviation of a point, from all differences of neighbours so far. From 288
  // points on, uses medians of blocks.
  double NeighbourSigma() const;
  bool GoesUpAndDown(double low, double high, int64_t onset) const {
    return analysis::GoesUpAndDown(blocks_, low, high, onset);
  }
  EndFigures LookAtEnd() const { return CompareEnd(first_, blocks_, count_); }
  ExplosionFigures LookForExplosion(std::span<const std::pair<int64_t, double>> newest,
                                    bool linear) const {
    return analysis::LookForExplosion(newest, linear, blocks_);
  }
  LearningFigures LookForLearning() const {
    return analysis::LookForLearning(first_, blocks_, count_);
  }
  // True at 96 points and each time their number has doubled, so that a running series is tested
  // too.
  bool EndIsDue() const {
    return count_ >= 96 && count_ % 3 == 0 && ((count_ / 3) & (count_ / 3 - 1)) == 0;
  }
  // True at 4,096 points and each time their number has doubled, so that a running series is tested
  // too.
  bool Due() const { return count_ >= 4096 && (count_ & (count_ - 1)) == 0; }

  const BlockMedians& blocks() const { return blocks_; }

  void Persist(Archive& a) { a(blocks_, first_, count_); }

 private:
  BlockMedians blocks_;
  std::vector<double> first_;  // the first 16 ln values
  uint64_t count_ = 0;
};

}  // namespace plumbline::analysis
