// Do results that no candidate explains look like sums of their addends that were rounded on the
// way?
//
// A bias accuses the accumulator. A clip, a compression, a buffer that was never reduced are biased
// too, and over many ranks the bound that holds for every order (collective/bound.h) lets nearly
// anything pass. What a sum in few bits gives can be told although its order is not known: an order
// that was chosen without looking at the values makes, of addends that are exchangeable over ranks,
// a result of the same law as an order drawn at random. So each element is summed in kOrders random
// orders, in every way of rounding partial sums that is listed here. A result lies outside of what
// these span with a probability of at most 2 / (kOrders + 1); outside of three times the span, and
// an ulp, as good as never. One in twenty may.
//
// Wide spans hold much that no sum is: over 256 bf16 ranks sums toward zero lie so far apart that
// a good sum cut to a third of the largest does too. So the results must also fall among the
// kOrders sums as these fall among each other:
// - V = (sums below y + half of those equal + 1/2) / (kOrders + 1) - 1/2, turned to the sum's sign,
//   is uniform on its 20 places: mean 0 and variance at most 1/12, |V| of mean 1/4 and variance at
//   most 1/48 (ties make them smaller). It knows nothing of the addends: times +1 where |s| is
//   above the call's median and -1 where below its mean is 0, too. Each to kBiasDeviations.
// - y is the nearest of the 20 to the exact sum with probability 1/20, and the farthest (of k that
//   tie each counts 1/k). Shares of n that are q have a probability of at most e^(-n KL(q, 1/20))
//   (Hoeffding 1963): e^-kSurprise is allowed.
// Good sums that something was done to some of are the nearest too often, at the spans' ends, or
// on one side where they are large and on the other where they are small.
//
// Nor may all results lie on a coarser grid than the partial sums' (two bits and more): they were
// rounded once more, to 8 bits perhaps, after they were summed.
//
// And the sums of one element, in different orders, must differ by less than they are biased: over
// 256 cancelling ranks sums toward zero are a fifth short in the mean and differ by half, and
// whatever takes a fifth of a result looks like one of them. (Of 19 orders the range is 3.7
// standard deviations.) Where the order is known it is a candidate and is replayed to the bit.
//
// A way explains a bias where the results fall among its sums and its own sums are as biased, by
// both intervals, or more. Where none does, the bias is not that of a sum that is known here, and
// nobody is accused: neither where ranks that are unlike were added in an order of their own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/collective/case/case.h"
#include "base/archive.h"

namespace plumbline::rules {

class SumLikeness {
 public:
  // One call that no candidate explains, and its judged columns. From kEnough elements on nothing
  // is added: work and state have a bound.
  void Take(const ReductionCase& c, std::span<const int32_t> columns);

  // Some way of summing is as biased as `mean`, whose interval is that ± `half_width`, in the unit
  // that biases are judged in.
  bool Explains(double mean, double half_width) const;
  // "bf16 partial sums, one after the other": the way that does; empty: none.
  std::string Words(double mean, double half_width) const;
  // "short-id: sentence", what the results look like instead; empty before the first call.
  std::string Excuse() const;
  bool any() const { return elements_ > 0; }

  void Persist(Archive& a) {
    a.Version(3, 3);
    a(ways_, elements_, bits_, excuse_);
  }

  static constexpr int kOrders = 19;
  static constexpr uint64_t kEnough = 1024;

 private:
  struct Way {
    std::string words;
    uint64_t outside = 0;
    double sum = 0;  // of the elements' mean errors, and of their squares
    double squares = 0;
    double range = 0;   // of the errors of one element's sums, of all elements
    double places = 0;  // sums of V, of |V|, and of V times ±1 by the size of the sum
    double apart = 0;
    double turned = 0;
    double nearest = 0;  // sums of 1/k
    double farthest = 0;
    int32_t precision = 0;  // of its partial sums
    void Persist(Archive& a) {
      a(words, outside, sum, squares, range, places, apart, turned, nearest, farthest, precision);
    }
  };

  static constexpr double kSurprise = 13.8;   // ln 10^6
  static constexpr uint64_t kFewOnGrid = 16;  // results of which 4^-16 have two bits to spare

  bool Fits(const Way& way) const;
  bool Coarse(const Way& way) const;
  bool FallsAmong(const Way& way) const;
  const Way* Find(double mean, double half_width) const;

  std::vector<Way> ways_;
  uint64_t elements_ = 0;
  int32_t bits_ = 0;  // significand bits that the results need, the most of any
  std::string excuse_;
};

}  // namespace plumbline::rules
