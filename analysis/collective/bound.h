// Whether a collective's results can be the sums of its inputs at all, whatever the order in which
// they were added; and where they cannot, what else they look like.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/replay.h"

namespace plumbline::rules {

// One result that no order of additions gives.
struct BrokenSum {
  int32_t sample = -1;  // -1: none
  double y = 0;         // as recorded; may be non-finite on a rank that the others contradict
  double exact = 0;
  double bound = 0;
};

// The results of one rank against the bound.
struct BoundedRank {
  uint32_t rank = 0;
  int32_t beyond = 0;
  BrokenSum worst;
};

// |y - s| <= c sum|x| + ulp(y), c = (N + 4) 2^(1 - p): N - 1 additions, the cast to the wire, a
// factor and a store, each off by at most one unit (2^(1-p), any rounding: nearest, toward zero,
// stochastic) of p significand bits; c / (1 - c) for what roundings make of roundings (Higham 2002,
// section 4.2). Half the unit where the arithmetic that explains nine samples in ten rounds to
// nearest. Elements whose magnitudes sum to beyond the format's range, where sums may saturate, are
// not compared. p: the wire's; 8 where none was declared (a 16-bit wire under f32 inputs is
// common), which is listed as an assumption.
struct SumBound {
  int32_t compared = 0;
  int32_t beyond = 0;  // of the result that the replay is of
  BrokenSum worst;
  int32_t precision = 0;  // p
  bool nearest = false;
  // Beyond, and further off than four times what any element within its bound is: of values that
  // were quantised with one scale all elements are off alike, and none stands out.
  int32_t broken = 0;
  // Ranks that got something else, while a strict majority of at least three got results that are
  // the sums.
  std::vector<BoundedRank> ranks;
  // "short-id: sentence" where the results are the sums after something that nobody declared (one
  // common factor, a clip), or something else than a sum; then nothing else is said of them.
  std::string excuse;
  // Every element is the sum times the factor that the call declares as applied afterwards.
  bool postscaled = false;

  bool found() const { return excuse.empty() && (broken > 0 || !ranks.empty()); }
};

// Is `algorithm` an order of summation, by the names that libraries give them? A DDP hook that
// reduces in its own way is recorded as "hook": it may do anything.
bool IsPlainSum(const std::string& algorithm);

// Where the first rank's results are not the sums and those of a strict majority are, `output`
// becomes theirs, and the first rank one of `others`.
void PreferMajority(ReductionCase& c);

SumBound CheckSumBound(const ReductionCase& c, const ReductionReplay& replay, double postscale);

}  // namespace plumbline::rules
