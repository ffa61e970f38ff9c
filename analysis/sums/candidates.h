// Derives the models to replay from the results of the probes.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "analysis/sums/fingerprint.h"
#include "analysis/sums/prober.h"

namespace plumbline::sums {

// Runs T1, T2, T4 and T5 on the tree and appends their results to *tests. Returns models that agree
// with all results, the likeliest first; never empty. If an addition rounds unlike the others, *odd
// describes it; else it is empty. If it is set, no model describes the function, even if the random
// data agree with one.
absl::StatusOr<std::vector<SumModel>> ModelsOf(Prober* prober, const SummationTree& tree,
                                               std::vector<TestResult>* tests, std::string* odd);
// Returns the models for a function in which no value was ever lost: one exact sum, rounded once.
std::vector<SumModel> ExactModels(const Target& target);

}  // namespace plumbline::sums
