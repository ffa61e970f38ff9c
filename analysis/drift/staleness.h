// Measures the part of d that comes from older weights. Uses a third forward pass, and sequences in
// which new weights arrive while they are drawn. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/statistics/statistics.h"
#include "base/archive.h"

namespace plumbline::analysis {

// d = s + m. s = log pi_theta - log pi_v is the effect of the updates since the token was drawn. m
// = log pi_v - log mu_v is the difference of the two programs at one version of the weights.
struct SplitFit {
  bool judged = false;  // at least 8 sequences with stale tokens
  double stale_count = 0, fresh_count = 0;
  uint64_t sequences = 0;
  // Mean s^2/2 of stale tokens minus that of tokens of lag 0, in which the trainer is compared with
  // itself.
  double staleness = 0, staleness_error = 0;
  double numerics = 0, numerics_error = 0;  // mean m^2/2 of the same tokens
  double cross = 0;                         // mean s m: k2 = staleness + own + numerics + cross
  double own = 0;                           // mean s^2/2 at lag 0; 0 if there are none
  double excess = 0, excess_error = 0;      // staleness - numerics
};

class StalenessSplit {
 public:
  // Both values must be finite. `fresh` means lag 0; tokens without a recorded lag count as stale.
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

// Compares the tokens just before and just after a change of version within one sequence: the same
// text, the same engine, weights of another age. The fall at the change is caused by the age of the
// weights. So half of the fall of d^2 is a lower bound of the staleness before, and the d^2 after
// it is an upper bound of the numerics.
struct JumpFit {
  bool judged = false;  // such changes occur in at least 8 sequences
  double boundaries = 0;
  uint64_t sequences = 0;
  double before = 0, after = 0;  // mean d^2/2
  double fall = 0, fall_error = 0;
  double excess = 0, excess_error = 0;   // fall - after
  double lag_before = 0, lag_after = 0;  // mean lags
};

class VersionJumps {
 public:
  static constexpr size_t kWindow = 16;  // most tokens on each side, each of one version
  static constexpr size_t kFewest = 4;

  // Adds the tokens of a sequence in order; lag >= 0, d finite.
  void Add(int64_t lag, double d);
  void EndSequence();
  JumpFit Fit() const;
  void Persist(Archive& a) { a(lags_, halves_, sums_); }

 private:
  enum { kN, kBefore, kAfter, kLagBefore, kLagAfter, kSize };
  // Computes the mean d^2/2 over at most kWindow tokens of one version from `at` on. `direction` is
  // +1 or -1.
  bool Window(size_t at, int direction, double* mean) const;

  std::vector<int64_t> lags_;
  std::vector<double> halves_;
  ClusterSums<kSize> sums_;
};

}  // namespace plumbline::analysis
