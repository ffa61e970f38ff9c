// Which arithmetics the sampled elements of a product may have been computed by.
#pragma once

#include <vector>

#include "analysis/product/case.h"
#include "analysis/product/model.h"

namespace plumbline::rules {

// All of them, none twice; models that differ in `store` alone lie side by side, cuts together. A
// split stands here with exact parts.
std::vector<MatmulModel> CandidateModels(const MatmulCase& c);

// A split with exact parts of 16 bits under the other ways to sum a part: worth a look where the
// split comes near, since that rounding hides most of what happens within a part.
std::vector<MatmulModel> PartVariants(const MatmulCase& c, const MatmulModel& split);
// How many of those there are in all.
uint64_t VariantCount(const MatmulCase& c, const std::vector<MatmulModel>& models);

}  // namespace plumbline::rules
