// Standard errors over contexts. Tokens with the same context share the difference between the two
// programs: the same prompt drawn again, or one prefix served thousands of times. Then d is the
// same number each time, and a thousand sequences through one context are one observation of its
// noise, for any number of tokens. A standard error over sequences alone would take a slope from
// that one draw as certain.
//
// So each estimate has a second sandwich, over contexts: the sums of ClusterSums, grouped by a
// token's context key. The larger of the two errors is used. Contexts are grouped into kBuckets by
// their hash, so that memory is constant; a larger cluster is still a cluster. G is the effective
// number of buckets with tokens (Kish: (sum n)^2 / sum n^2). The deviations of a normal
// distribution are widened to those of Student's t with G - 1 degrees: at 5 deviations by 3.5 for
// 8, 1.25 for 32, 1.11 for 64. Below kFewestContexts there is no result.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

// Hash of what tokens of one context have in common; kOwnContext if nothing is known.
using ContextKey = uint64_t;
inline constexpr ContextKey kOwnContext = 0;
inline constexpr double kFewestContexts = 8;

// SplitMix64's finaliser. Never returns kOwnContext.
inline ContextKey ContextKeyOf(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
  return (bits ^ (bits >> 31)) | 1;
}

// Returns the factor by which the tail of Student's t with `clusters` - 1 degrees is further out
// than that of a normal distribution, at `look` deviations (Wallace 1959).
inline constexpr double kFarLook = 5, kNearLook = 2.6;
inline double StudentFactor(double clusters, double look = kFarLook) {
  const double df = clusters - 1, c = (8 * df + 3) / (8 * df + 1);
  return std::sqrt(df * std::expm1(look * look * c * c / df)) / look;
}

template <size_t K>
class ContextSums {
 public:
  using Vector = std::array<double, K>;
  static constexpr size_t kBuckets = 64;

  void Add(ContextKey key, const Vector& v) {
    if (key == kOwnContext) return;
    if (buckets_.empty()) buckets_.resize(kBuckets);
    Bucket& bucket = buckets_[(key >> 32) % kBuckets];
    bucket.tokens += 1;
    for (size_t i = 0; i < K; ++i) bucket.sums[i] += v[i];
  }

  void Merge(const ContextSums& other) {
    if (other.buckets_.empty()) return;
    if (buckets_.empty()) buckets_.resize(kBuckets);
    for (size_t b = 0; b < kBuckets; ++b) {
      buckets_[b].tokens += other.buckets_[b].tokens;
      for (size_t i = 0; i < K; ++i) buckets_[b].sums[i] += other.buckets_[b].sums[i];
    }
  }

  // Returns G. If no token's context is known, returns 0.
  double effective() const {
    double n = 0, squares = 0;
    for (const Bucket& bucket : buckets_) {
      n += bucket.tokens;
      squares += bucket.tokens * bucket.tokens;
    }
    return n > 0 ? n * n / squares : 0;
  }

  // Returns the larger of `over_sequences` and the error of an estimate with influence c . v, for a
  // test at `look` of its errors. If there are too few contexts, returns NaN.
  double Error(const Vector& c, double over_sequences, double look = kFarLook) const {
    const double clusters = effective();
    if (clusters == 0) return over_sequences;
    if (clusters < kFewestContexts) return std::numeric_limits<double>::quiet_NaN();
    double sum = 0;
    for (const Bucket& bucket : buckets_) {
      double influence = 0;
      for (size_t i = 0; i < K; ++i) influence += c[i] * bucket.sums[i];
      sum += influence * influence;
    }
    const double error = StudentFactor(clusters, look) * std::sqrt(sum * clusters / (clusters - 1));
    return error > over_sequences ? error : over_sequences;
  }

  void Persist(Archive& a) { a(buckets_); }

 private:
  struct Bucket {
    double tokens = 0;
    Vector sums{};
    void Persist(Archive& a) { a(tokens, sums); }
  };
  std::vector<Bucket> buckets_;  // kBuckets, from the first token on
};

}  // namespace plumbline::analysis
