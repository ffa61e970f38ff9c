// Which arithmetics the sampled elements of a product may have been computed by.
#pragma once

#include <vector>

#include "rules/lib/matmul_case.h"
#include "rules/lib/matmul_model.h"

namespace plumbline::rules {

// All of them, none twice; models that differ in `store` alone lie side by side, cuts together.
std::vector<MatmulModel> CandidateModels(const MatmulCase& c);

}  // namespace plumbline::rules
