// The arithmetics by which the sampled elements of a product may have been computed.
#pragma once

#include <vector>

#include "analysis/product/case.h"
#include "analysis/product/model.h"

namespace plumbline::analysis {

// Returns all of them once. Models that differ only in `store` are neighbours, and cuts are
// together. A split has exact parts here.
std::vector<MatmulModel> CandidateModels(const MatmulCase& c);

// Returns a split with exact 16-bit parts, with the other ways to sum a part. Useful if the split
// almost fits, because the rounding to 16 bits hides most of what happens within a part.
std::vector<MatmulModel> PartVariants(const MatmulCase& c, const MatmulModel& split);
// Returns the total number of those.
uint64_t VariantCount(const MatmulCase& c, const std::vector<MatmulModel>& models);

}  // namespace plumbline::analysis
