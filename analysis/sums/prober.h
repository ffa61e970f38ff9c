// Asks a target for sums of chosen values, and counts how often.
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

  // Addend i becomes `value`, a number of few bits: where there are products, its exponent is split
  // between the two factors.
  void Set(int i, double value);
  void SetFactors(int i, double a, double b);
  void Fill(double value);  // all addends
  absl::StatusOr<double> Call();
  absl::StatusOr<double> Call(absl::Span<const double> a, absl::Span<const double> b);

  const Target& target() const { return target_; }
  int64_t calls() const { return calls_; }
  // Not OK once the target itself has failed; probes' own statuses are another matter.
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
// An adder that does not round to nearest moves `big` by a last bit when a unit of the other sign
// meets it. For those, big is only so large that its last bits are multiples of `modulus` units,
// more than are ever counted at a time: what is left below the modulus is the count.
struct ProbeScale {
  double big = 0;
  double unit = 0;
  int modulus_log2 = 0;   // 0: none
  bool masks = true;      // false: nothing is ever lost, the sum is exact or too wide to tell
  int capacity_log2 = 0;  // 2^this units are added up without a loss, whatever the order

  // How many units y says are left; -1 unless that is a whole number up to `most`.
  int CountIn(double y, int most) const;
};

// Tries what the formats allow, and finds out how many units may be counted at once.
// FailedPrecondition: no pair of magnitudes gives whole counts (what was tried is in the message).
absl::StatusOr<ProbeScale> ChooseScale(Prober* prober, uint64_t seed);

}  // namespace plumbline::sums
