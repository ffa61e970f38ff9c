// Finds the one rank whose part in the results is not its recorded values.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/collective/sum_columns.h"

namespace plumbline::analysis {

struct OddRank {
  enum class Kind : uint8_t { kNone, kFlipped, kReplaced };
  Kind kind = Kind::kNone;
  int row = -1;          // of the inputs
  double weight = 0;     // with which the row enters the results, if kReplaced: about 0
  double deviation = 0;  // of the weight
  // kFlipped: a candidate arithmetic gives all results bit for bit if the row's sign is flipped.
  bool replayed = false;
  int32_t compared = 0;

  bool found() const { return kind != Kind::kNone; }
};

// Call if no candidate explains the results. Errors e = y - s are compared with -2 x_r (the sign of
// rank r's values is flipped) and with -x_r plus independent values of a similar size (other values
// are summed in their place: a buffer of an earlier step).
//
// kFlipped: a replay with -x_r gives all results; or all results are within the bound of the sums
// with -x_r, the rest e + 2 x_r is at most a quarter of x_r (root mean square), and three times
// smaller than for every other rank and than for a common factor.
// kReplaced: the part of e that the sums do not explain has the weight -1 on x_r's deviation, by
// 0.2 and within 5 standard errors. The rest depends on no rank: every correlation is below 5 /
// sqrt(m). The values in place of x_r are between half of its size and twice its size, and larger
// than two roundings of the results, so that they are not the rounding of a sum without rank r.
// `columns`: of SumColumnsOf.
OddRank FindOddRank(const ReductionCase& c, const std::vector<SumColumn>& columns);

}  // namespace plumbline::analysis
