// A model's shape from the `config.json` that Hugging Face models carry. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/plan/plan.h"

namespace plumbline::audit {

struct CountedModel {
  plan::ModelShape shape;          // sequence: the longest that the model takes
  std::vector<std::string> notes;  // what was assumed
};

// Parameters are counted from the shapes that the configuration names: embeddings, attention
// (grouped or latent), feed-forward layers gated or not, experts, routers; norms and biases are
// left out (below 0.1 %). InvalidArgument: what is missing, by its key; the file's offset where it
// is no JSON. NotFound: no such file.
absl::StatusOr<CountedModel> ReadModel(const std::string& path);

}  // namespace plumbline::audit
