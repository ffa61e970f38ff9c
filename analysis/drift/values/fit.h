// Fits straight lines and means over tokens that belong to sequences. The standard errors treat a
// sequence as one observation (sandwich over clusters, Liang and Zeger 1986). If tokens have a
// ContextKey, they also treat a context as one observation (context_sums.h). The caller must leave
// out pairs with a non-finite value. Mergeable, not thread-safe.
#pragma once

#include <cstdint>

#include "analysis/statistics/statistics.h"
#include "base/archive.h"

namespace plumbline::analysis {

// If there are fewer sequences, the standard error is NaN.
inline constexpr uint64_t kFewestClusters = 8;

// The mean of y over tokens.
class ClusteredMean {
 public:
  void Add(double y, ContextKey context = kOwnContext) {
    v_[0] += 1;
    v_[1] += y;
    contexts_.Add(context, {1, y});
  }
  void EndSequence();
  void Merge(const ClusteredMean& other) {
    sums_.Merge(other.sums_);
    contexts_.Merge(other.contexts_);
  }

  double count() const { return sums_.total()[0]; }
  uint64_t sequences() const { return sums_.clusters(); }
  double mean() const { return sums_.total()[1] / count(); }  // NaN if empty
  double standard_error() const;
  double z() const { return mean() / standard_error(); }
  void Persist(Archive& a) { a(v_, sums_, contexts_); }

 private:
  ClusterSums<2>::Vector v_{};  // n and sum y of the open sequence
  ClusterSums<2> sums_;
  ContextSums<2> contexts_;
};

// Least squares y = intercept + slope x over all tokens.
struct SlopeFit {
  double count = 0;
  uint64_t sequences = 0;
  double slope = 0;  // NaN if x does not vary
  // The larger of the standard error over contexts, which is widened (context_sums.h), and
  // sequence_error.
  double standard_error = 0;
  double sequence_error = 0;  // standard error over sequences, not widened for their number
  double intercept = 0;
  double r2 = 0;  // 0 if y does not vary
  double variance_x = 0, variance_y = 0;
  double z() const { return slope / standard_error; }
};

class ClusteredSlope {
 public:
  void Add(double x, double y, ContextKey context = kOwnContext) {
    const ClusterSums<5>::Vector token = {1, x, y, x * x, x * y};
    for (size_t i = 0; i < token.size(); ++i) v_[i] += token[i];
    contexts_.Add(context, token);
    yy_ += y * y;
  }
  void EndSequence();
  void Merge(const ClusteredSlope& other);
  SlopeFit Fit() const;
  void Persist(Archive& a) { a(v_, sums_, contexts_, yy_); }

 private:
  ClusterSums<5>::Vector v_{};  // n, sum x, sum y, sum x^2, sum xy
  ClusterSums<5> sums_;
  ContextSums<5> contexts_;
  double yy_ = 0;
};

// k2 as a function of the version lag: y = a at lag 0, y = a + b lag + c lag^2 above, b, c >= 0.
// Only the tokens of lag 0 determine a.
struct LagFit {
  bool fitted = false;  // there are tokens at lag 0 and tokens above lag 0
  double at_zero = 0;   // a
  double linear = 0, quadratic = 0;
  double zero_count = 0, stale_count = 0;
  uint64_t sequences = 0;
  // At the requested lag: b lag + c lag^2, and this value minus a, with its standard error.
  double stale_part = 0;
  double excess = 0;
  double excess_error = 0;
};

class LagRegression {
 public:
  void Add(double lag, double y, ContextKey context = kOwnContext);  // lag >= 0
  void EndSequence();
  void Merge(const LagRegression& other) {
    sums_.Merge(other.sums_);
    contexts_.Merge(other.contexts_);
  }
  LagFit Fit(double lag) const;
  void Persist(Archive& a) { a(v_, sums_, contexts_); }

 private:
  // n0, sum y0, then for stale tokens: n, sum L^2, L^3, L^4, L, L y, L^2 y.
  enum { kN0, kY0, kN, kL1, kL2, kL3, kL4, kL1Y, kL2Y, kSize };
  ClusterSums<kSize>::Vector v_{};
  ClusterSums<kSize> sums_;
  ContextSums<kSize> contexts_;
};

}  // namespace plumbline::analysis
