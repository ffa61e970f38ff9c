// Rows of probabilities, looked at one by one: how far each sum is from one, and what else than a
// bad sum could have put it there.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/sample/sample.h"

namespace plumbline::rules {

enum class RowKind {
  kSumsToOne,  // within the bound
  kNearOne,  // beyond it, within 2^-13: exp of a difference of fp32 logits in the thousands errs so
  kExcess,   // more than one, by no more than sums of n addends in 8 bits can err
  kDeficit,  // less than one, likewise
  kNotOne,   // further from one than any sum of 16 bits explains
  kGaps,     // not one, and zeros between its values: dropout, a top-k, a sparse mask
  kMasked,   // all zero
  kNonFinite,  // a NaN or an infinity
  kNoShare,    // a value below zero or above one
  kSteps,      // not one, and its values are whole multiples of one step: integers with a scale
};

struct ProbabilityRow {
  RowKind kind = RowKind::kSumsToOne;
  double sum = 0;
  double bound = 0;  // on |sum - 1|
  double largest = 0;
  double least = 0;
  bool floored = false;  // what lies on the least value makes the difference from one
  // What sums in 8 or 11 bits would have divided this row by is what it was divided by, and that
  // puts its sum where it is, far above one.
  bool stopped = false;
  int64_t positive = 0;  // values above zero
  uint64_t index = 0;    // row of the tensor
};

// The coarsest floating dtype that holds every value of the rows: what they were rounded to.
DType RowsDType(const TensorCase& c);

// `c` holds whole rows. The bound is half an ulp of each value in the coarsest dtype that holds all
// of them (rows saved in a wider dtype than they were computed in), plus (n + 2) * 2^-24 for sums
// and divisions in fp32.
std::vector<ProbabilityRow> LookAtRows(const TensorCase& c);

// Every row that is too large is floored, by one floor.
bool OneFloor(const std::vector<ProbabilityRow>& rows);

// A normaliser that stopped, replayed. exp(x - max) is 1 at a row's largest value: 1/largest is
// what the row was divided by, and p/largest what was summed, to a rounding of each. Added one by
// one in bf16 or fp16 those stop where one more is less than half a unit. Where that gives
// 1/largest within a rounding of p, and a sum that is above one by 5 % and by 4 bounds, the row is
// `stopped`: scaled by one factor, it is so only where the factor is the very one. All rows beyond
// one must be.
bool StoppedNormaliser(const std::vector<ProbabilityRow>& rows);

// All rows have one sum other than one, though they are not alike: a factor that somebody applied.
bool OneFactor(const std::vector<ProbabilityRow>& rows);

// Every sum other than one is what a customary rate of dropout makes of a row that lost nothing,
// and that so many values lost nothing is not beyond belief (a chance of 1e-6).
bool DropoutFactor(const std::vector<ProbabilityRow>& rows);

}  // namespace plumbline::rules
