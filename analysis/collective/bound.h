// Tests whether a collective's results can be sums of its inputs, in any order of additions. If
// not, finds another operation that explains them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/cut_inputs.h"
#include "analysis/collective/replaced_rank.h"
#include "analysis/collective/replay/replay.h"

namespace plumbline::analysis {

// A result that no order of additions can give.
struct BrokenSum {
  int32_t sample = -1;  // -1 if there is none
  // Result as recorded; may be non-finite on a rank that differs from the others.
  double y = 0;
  double exact = 0;
  double bound = 0;
};

// The results of one rank, compared with the bound.
struct BoundedRank {
  uint32_t rank = 0;
  int32_t beyond = 0;
  BrokenSum worst;
};

// |y - s| <= c sum|x| + ulp(y), c = (N + 4) 2^(1 - p): N - 1 additions, the cast to the wire, a
// factor and a store, each off by at most one unit (2^(1-p), for any rounding: nearest, toward
// zero, stochastic) of p significand bits; c / (1 - c) for repeated roundings (Higham 2002, section
// 4.2). If the arithmetic that explains nine of ten samples rounds to nearest, the unit is half as
// large. Elements whose magnitudes sum to more than the format's range, where sums may saturate,
// are not compared. p is the precision of the wire dtype. If none was declared, p is 8, because f32
// inputs are often sent in 16 bits; the verdict lists this assumption.
struct SumBound {
  int32_t compared = 0;
  int32_t beyond = 0;  // number of elements beyond the bound, in the result that the replay uses
  BrokenSum worst;
  int32_t precision = 0;  // p
  bool nearest = false;
  // Number of results outside the bound whose error exceeds four times that of every element within
  // it. If values were quantised with one scale, all errors are similar, and none is so large.
  int32_t broken = 0;
  // Ranks with another result, if a strict majority of at least three ranks has the sums.
  std::vector<BoundedRank> ranks;
  // "short-id: sentence" if the results are the sums after an undeclared operation (one common
  // factor, a clip), or are not a sum. Then no rule reports anything else about them.
  std::string explanation;
  // Every element is the sum times the postscale that the call declares.
  bool postscaled = false;

  // If one of these is found, the explanation is empty.
  ReplacedRank flipped;
  CutInputs cut;

  bool found() const { return explanation.empty() && (not_sums() || !ranks.empty()); }
  // Returns true if the results show nothing about how partial sums are rounded.
  bool not_sums() const { return broken > 0 || flipped.found() || cut.found(); }
};

// Returns true if `algorithm` is an order of summation, by the names that libraries give them. A
// DDP hook that reduces in its own way is recorded as "hook" and may do anything.
bool IsPlainSum(const std::string& algorithm);

// If a strict majority of the ranks has the sums but the first rank does not, moves the first
// rank's results to `others`, and makes `output` those of the majority.
void PreferMajority(ReductionCase& c);

SumBound CheckSumBound(const ReductionCase& c, const ReductionReplay& replay, double postscale);

}  // namespace plumbline::analysis
