// Reads a model's shape from the `config.json` of Hugging Face models. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "calculators/plan/plan.h"

namespace plumbline::audit {

struct CountedModel {
  plan::ModelShape shape;          // `sequence` is the longest that the model accepts
  std::vector<std::string> notes;  // assumptions
};

// Counts parameters from the shapes in the configuration: embeddings, attention (grouped or
// latent), feed-forward layers gated or not, experts, routers. Norms and biases are left out (below
// 0.1 %). Returns InvalidArgument with the missing key, or with the file's offset if it is not
// JSON; NotFound if there is no such file.
absl::StatusOr<CountedModel> ReadModel(const std::string& path);

}  // namespace plumbline::audit
