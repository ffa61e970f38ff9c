// How much of d comes from older weights: by a third forward pass, and by what happens inside a
// sequence where new weights arrive while it is drawn. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/statistics/statistics.h"
#include "base/archive.h"

namespace plumbline::rules {

// d = s + m: s = log pi_theta - log pi_v is what the updates since the token was drawn did to it,
// m = log pi_v - log mu_v the two programs at one version of the weights.
struct SplitFit {
  bool judged = false;  // at least 8 sequences with stale tokens
  double stale_count = 0, fresh_count = 0;
  uint64_t sequences = 0;
  // Mean s^2/2 of stale tokens less that of tokens of lag 0, where the trainer meets itself.
  double staleness = 0, staleness_error = 0;
  double numerics = 0, numerics_error = 0;  // mean m^2/2 of the same tokens
  double cross = 0;                         // mean s m: k2 = staleness + own + numerics + cross
  double own = 0;                           // mean s^2/2 at lag 0; 0 where there are none
  double excess = 0, excess_error = 0;      // staleness less numerics
};

class StalenessSplit {
 public:
  // Both finite. `fresh`: of lag 0; tokens of no recorded lag count as stale.
  void Add(bool fresh, double moved, double apart, ContextKey context = kOwnContext);
  void EndSequence();
  SplitFit Fit() const;
  void Persist(Archive& a) { a(v_, sums_, contexts_, stale_sequences_); }

 private:
  enum { kN, kSS, kMM, kSM, kN0, kSS0, kSize };
  ClusterSums<kSize>::Vector v_{};
  ClusterSums<kSize> sums_;
  ContextSums<kSize> contexts_;
  uint64_t stale_sequences_ = 0;
};

// Right before and right after a change of version within one sequence: the same text, the same
// engine, weights of another age. What falls there came from their age, so that half the fall of
// d^2 is at least a part of what staleness adds before, and numerics are at most what is left
// after.
struct JumpFit {
  bool judged = false;  // in at least 8 sequences
  double boundaries = 0;
  uint64_t sequences = 0;
  double before = 0, after = 0;  // mean d^2/2
  double fall = 0, fall_error = 0;
  double excess = 0, excess_error = 0;   // fall less after
  double lag_before = 0, lag_after = 0;  // means
};

class VersionJumps {
 public:
  static constexpr size_t kWindow = 16;  // tokens on each side, of one version
  static constexpr size_t kFewest = 4;

  // Tokens of a sequence in their order; lag >= 0, d finite.
  void Add(int64_t lag, double d);
  void EndSequence();
  JumpFit Fit() const;
  void Persist(Archive& a) { a(lags_, halves_, sums_); }

 private:
  enum { kN, kBefore, kAfter, kLagBefore, kLagAfter, kSize };
  // Mean d^2/2 over at most kWindow tokens of one version from `at`, `direction` +1 or -1.
  bool Window(size_t at, int direction, double* mean) const;

  std::vector<int64_t> lags_;
  std::vector<double> halves_;
  ClusterSums<kSize> sums_;
};

}  // namespace plumbline::rules
