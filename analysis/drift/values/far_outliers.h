// Counts the tokens around far outliers: |d| above ln 100. If token ids differ between the sides, a
// few tokens are far off and the others of their sequence agree. If weights, prompts or random
// layers differ, the others differ as well, or the first tokens of responses have the outliers. Not
// thread-safe.
#pragma once

#include <cstdint>

#include "base/archive.h"

namespace plumbline::analysis {

class FarOutliers {
 public:
  // Takes a fresh token of the open sequence. `d` must be finite.
  void Add(double d);
  void EndSequence();

  // True if, in sequences with outliers, at most a third of the other tokens differ by a factor
  // above 2, and the first 8 tokens of responses do not have most of the outliers. False if there
  // is no outlier.
  bool OthersAgree() const;

  // open_ belongs to one sequence, so it is not stored.
  void Persist(Archive& a) { a(total_.tokens, total_.apart, total_.far, total_.far_first, share_); }

 private:
  static constexpr uint64_t kFirst = 8;
  struct Counts {
    uint64_t tokens = 0;
    uint64_t apart = 0;      // above ln 2, without the far ones
    uint64_t far = 0;        // above ln 100
    uint64_t far_first = 0;  // of these, in the first tokens
  };
  Counts open_, total_;
  double share_ = 0;  // number of outliers that first tokens would have by their share of tokens
};

}  // namespace plumbline::analysis
