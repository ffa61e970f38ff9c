// Analyses rows of probabilities: how far each sum is from one, and which other causes than a wrong
// sum explain it.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/sample/sample.h"

namespace plumbline::analysis {

enum class RowKind {
  kSumsToOne,  // within the bound
  kNearOne,  // outside, but within 2^-13: exp of a difference of fp32 logits in the thousands errs
             // by that
  kExcess,   // more than one, within the error of sums of n addends in 8 bits
  kDeficit,  // less than one, likewise
  kNotOne,   // further from one than any sum in 16 bits explains
  kGaps,     // not one, with zeros between its values: dropout, a top-k, a sparse mask
  kMasked,   // all zero
  kNonFinite,  // a NaN or an infinity
  kNoShare,    // a value below zero or above one
  kSteps,      // not one, and its values are integer multiples of one step: integers with a scale
};

struct ProbabilityRow {
  RowKind kind = RowKind::kSumsToOne;
  double sum = 0;
  double bound = 0;  // on |sum - 1|
  double largest = 0;
  double least = 0;
  bool floored = false;  // the values equal to the smallest one explain the difference from one
  // The row was divided by what sums in 8 or 11 bits would give, which explains why its sum is far
  // above one.
  bool stopped = false;
  int64_t positive = 0;  // number of values above zero
  uint64_t index = 0;    // row number in the tensor
};

// Returns the coarsest floating-point dtype that holds every value of the rows: the dtype that they
// were rounded to.
DType RowsDType(const TensorCase& c);

// Analyses whole rows. The bound is half an ulp of each value in the coarsest dtype that holds all
// of them, because rows may be saved in a wider dtype than they were computed in. To that it adds
// (n + 2) * 2^-24 for sums and divisions in fp32.
std::vector<ProbabilityRow> LookAtRows(const TensorCase& c);

// Returns true if every row with a too large sum is floored, by one floor.
bool OneFloor(const std::vector<ProbabilityRow>& rows);

// Returns true if a normaliser stopped growing, by replaying it. exp(x - max) is 1 at a row's
// largest value. So the row was divided by 1/largest, and p/largest was summed, up to one rounding
// each. In bf16 or fp16 a sequential sum stops growing when one more addend is less than half a
// unit. If the replay gives 1/largest within a rounding of p, and the row's sum exceeds one by 5 %
// and by 4 bounds, the row is `stopped`. A row scaled by another factor does not match. All rows
// above one must be stopped.
bool StoppedNormaliser(const std::vector<ProbabilityRow>& rows);

// Returns true if all rows have one sum other than one, although they differ: a factor was applied.
bool OneFactor(const std::vector<ProbabilityRow>& rows);

// Returns true if every sum other than one fits a row that lost nothing at a customary dropout
// rate, and if it is plausible (probability above 1e-6) that this number of values lost nothing.
bool DropoutFactor(const std::vector<ProbabilityRow>& rows);

}  // namespace plumbline::analysis
