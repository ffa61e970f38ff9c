// Calls a target with chosen values, and counts the calls.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/sums/target.h"

namespace plumbline::sums {

// Not thread-safe. The target must outlive it.
class Prober {
 public:
  explicit Prober(const Target& target);

  // Sets addend i to `value`, a number of few bits. If there are products, its exponent is split
  // between the two factors.
  void Set(int i, double value);
  void SetFactors(int i, double a, double b);
  void Fill(double value);  // sets all addends
  absl::StatusOr<double> Call();
  absl::StatusOr<double> Call(absl::Span<const double> a, absl::Span<const double> b);

  const Target& target() const { return target_; }
  int64_t calls() const { return calls_; }
  // Not OK if the target itself has failed. The statuses of probes are separate.
  const absl::Status& failure() const { return failure_; }

 private:
  const Target& target_;
  std::vector<double> a_;
  std::vector<double> b_;
  int64_t calls_ = 0;
  absl::Status failure_;
};

// The two magnitudes of a masking probe: next to `big`, any partial sum of `unit`s is lost.
//
// If an adder does not round to nearest, a unit of the other sign moves `big` by a last bit. Then
// big is chosen so that its last bits are multiples of `modulus` units, which exceeds every count.
// The count is the remainder below the modulus.
struct ProbeScale {
  double big = 0;
  double unit = 0;
  int modulus_log2 = 0;   // 0 if there is none
  bool masks = true;      // false if nothing is ever lost: the sum is exact, or too wide to decide
  int capacity_log2 = 0;  // this power of 2 of units adds up without a loss in any order

  // Returns how many units are left according to y. If that is not an integer up to `most`, returns
  // -1.
  int CountIn(double y, int most) const;
};

// Tries the magnitudes that the formats allow, and finds how many units can be counted at once.
// Returns FailedPrecondition if no pair of magnitudes gives integer counts (the message lists what
// was tried).
absl::StatusOr<ProbeScale> ChooseScale(Prober* prober, uint64_t seed);

}  // namespace plumbline::sums
