// Rows of probabilities, looked at one by one: how far each sum is from one, and what else than a
// bad sum could have put it there.
#pragma once

#include <cstdint>
#include <vector>

#include "rules/lib/sample_values.h"

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

// All rows have one sum other than one, though they are not alike: a factor that somebody applied.
bool OneFactor(const std::vector<ProbabilityRow>& rows);

// Every sum other than one is what a customary rate of dropout makes of a row that lost nothing.
bool DropoutFactor(const std::vector<ProbabilityRow>& rows);

}  // namespace plumbline::rules
