// From what the probes saw to the models worth replaying.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "analysis/sums/fingerprint.h"
#include "analysis/sums/prober.h"

namespace plumbline::sums {

// Runs T1, T2, T4 and T5 on the tree and appends their results to *tests. The models agree with all
// that was seen, the likeliest first; never empty. *odd: an addition that rounds unlike the others,
// in words, else empty; with one no model is the function's, whatever the random data say.
absl::StatusOr<std::vector<SumModel>> ModelsOf(Prober* prober, const SummationTree& tree,
                                               std::vector<TestResult>* tests, std::string* odd);
// Where no value was ever lost: one exact sum, rounded once.
std::vector<SumModel> ExactModels(const Target& target);

}  // namespace plumbline::sums
