// Tests whether results that no candidate explains are distributed like sums of their addends with
// rounded partial sums.
//
// A bias is evidence against the accumulator. But a clip, a compression, or a buffer that was never
// reduced also has a bias. Over many ranks, the bound that holds for every order
// (collective/bound.h) excludes almost nothing. Sums in few bits can be recognised even if their
// order is not known. Let the addends be exchangeable over ranks. Then an order that was chosen
// without reading the values gives a result with the same distribution as a random order. So each
// element is summed in kOrders random orders, for every listed way of rounding partial sums. A
// result is outside their range with a probability of at most 2 / (kOrders + 1), and practically
// never outside three times the range, plus an ulp. The test allows one result in twenty to be
// outside.
//
// If ranges are wide, values that are not sums may also be within them. Over 256 bf16 ranks, sums
// toward zero differ so much that a good sum, clipped to a third of the largest, is among them. So
// the results must also be distributed among the kOrders sums as these are among each other:
// - V = (sums below y + half of those equal + 1/2) / (kOrders + 1) - 1/2, multiplied by the sum's
//   sign, is uniform on its 20 places: mean 0 and variance at most 1/12, |V| of mean 1/4 and
// variance at most 1/48 (ties make them smaller). It is independent of the addends. So its mean is
// also 0 if it is multiplied by +1 for |s| above the call's median and by -1 for |s| below it. Each
// mean must be within kBiasDeviations.
// - y is the closest of the 20 to the exact sum with probability 1/20, and the farthest with the
// same probability (if k are equal, each counts 1/k). A share q of n has a probability of at most
// e^(-n KL(q, 1/20)) (Hoeffding 1963); the limit is e^-kSurprise.
//
// If good sums were partly modified, they are too often the closest ones, or at the ends of the
// ranges, or large ones are on one side and small ones on the other.
//
// The results must not all be on a grid that is coarser than that of the partial sums by two bits
// or more. If they are, they were rounded again after the sum, perhaps to 8 bits.
//
// Finally, the sums of one element in different orders must differ by less than their bias. Over
// 256 ranks whose values cancel, sums toward zero are on average a fifth too small and differ by
// half. So any operation that removes a fifth of a result looks like one of them. (The range of 19
// orders is 3.7 standard deviations.) If the order is known, it is a candidate, and is replayed bit
// for bit.
//
// A way of rounding explains a bias if the results are distributed like its sums, and if its own
// sums are at least as biased, by both intervals. If no way explains it, the bias is not that of a
// known sum, and there is no finding. There is also none if ranks with different values were added
// in an order that depends on the values.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/collective/case/case.h"
#include "base/archive.h"

namespace plumbline::analysis {

class SumLikeness {
 public:
  // Takes one call that no candidate explains, and its judged columns. Adds nothing from kEnough
  // elements on, so that work and state are bounded.
  void Take(const ReductionCase& c, std::span<const int32_t> columns);

  // Returns true if some way of rounding has a bias of at least `mean`, whose interval is mean ±
  // `half_width`, in the unit in which biases are judged.
  bool Explains(double mean, double half_width) const;
  // Returns the name of this way, such as "bf16 partial sums, one after the other", or "" if there
  // is none.
  std::string Words(double mean, double half_width) const;
  // Returns "short-id: sentence" with another operation that may explain the results. Before the
  // first call, returns "".
  std::string Explanation() const;
  bool any() const { return elements_ > 0; }

  void Persist(Archive& a) {
    a.Version(3, 3);
    a(ways_, elements_, bits_, explanation_);
  }

  static constexpr int kOrders = 19;
  static constexpr uint64_t kEnough = 1024;

 private:
  struct Way {
    std::string words;
    uint64_t outside = 0;
    double sum = 0;  // sum of the elements' mean errors, and of their squares
    double squares = 0;
    double range = 0;   // sum over elements of the range of one element's errors
    double places = 0;  // sums of V, of |V|, and of V times ±1 by the size of the sum
    double apart = 0;
    double turned = 0;
    double nearest = 0;  // sums of 1/k
    double farthest = 0;
    int32_t precision = 0;  // precision of the partial sums
    void Persist(Archive& a) {
      a(words, outside, sum, squares, range, places, apart, turned, nearest, farthest, precision);
    }
  };

  static constexpr double kSurprise = 13.8;  // ln 10^6
  // Number of results; the probability that all of them are on such a coarser grid by chance is
  // 4^-16.
  static constexpr uint64_t kFewOnGrid = 16;

  bool Fits(const Way& way) const;
  bool Coarse(const Way& way) const;
  bool FallsAmong(const Way& way) const;
  const Way* Find(double mean, double half_width) const;

  std::vector<Way> ways_;
  uint64_t elements_ = 0;
  int32_t bits_ = 0;  // largest number of significand bits that a result needs
  std::string explanation_;
};

}  // namespace plumbline::analysis
