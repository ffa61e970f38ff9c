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
// an ulp, as good as never. One in twenty may: ranks need not be exchangeable.
//
// A way explains a bias where the results lie within its spans and its own sums are as biased, by
// both intervals, or more (groups of ranks that are summed well first make it milder). Where none
// does, the bias is not that of a sum, and nobody is accused.
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
    a.Version(1);
    a(ways_, elements_, excuse_);
  }

  static constexpr int kOrders = 19;
  static constexpr uint64_t kEnough = 1024;

 private:
  struct Way {
    std::string words;
    uint64_t outside = 0;
    double sum = 0;  // of the elements' mean errors, and of their squares
    double squares = 0;
    void Persist(Archive& a) { a(words, outside, sum, squares); }
  };

  bool Fits(const Way& way) const { return way.outside * 20 <= elements_; }
  const Way* Find(double mean, double half_width) const;

  std::vector<Way> ways_;
  uint64_t elements_ = 0;
  std::string excuse_;
};

}  // namespace plumbline::rules
