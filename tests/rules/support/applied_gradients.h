// Simulated gradients of ranks that train together: each rank's own, and what the optimizer reads.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

struct AppliedSpec {
  int ranks = 4;
  int parameters = 8;
  int steps = 3;
  int samples = 48;
  double alike = 0;           // share of the gradient that all ranks have in common
  double clip = 1;            // coefficient of each step's clip
  bool tokens = false;        // ranks are weighted by tokens, which differ by step
  DType dtype = DType::kF32;  // of own gradients, of the sums and of what is applied
  DType sum = DType::kF32;    // of the sums, if narrower
  bool declared = true;       // as an average
  // One parameter: "left-out", "left-out-shared" (the others divide by their own number),
  // "doubled", "scaled" (summed, not averaged), "other" (contains the next parameter's gradient of
  // the last rank), "one-not-summed". All: "not-summed". Healthy or unknown: "masked" (elements are
  // set to 0), "clamped" (clipped by element), "decay" (a term is added to half of the parameters),
  // "clip-each" (each parameter has a coefficient), "halved" (one is scaled on purpose), "noise",
  // "local" (each rank keeps its own, undeclared), "compressed" (the largest elements are sent).
  std::string fault;
  int parameter = 2;     // the faulty one
  int rank = 1;          // left out or doubled
  int first = 0;         // the first faulty step
  int last = 1 << 30;    // the last one
  std::string poison;    // "one": NaN in one parameter; "all"
  int absent_rank = -1;  // has no gradient of the faulty parameter (zeros)
  bool whole = false;    // one record contains all ranks
  int twins = 0;         // this many ranks have the data of rank 0
  uint64_t seed = 1;
};

// Sets one field. Throws std::runtime_error if the key is unknown.
void Set(AppliedSpec& spec, const std::string& key, const std::string& value);

// Returns one batch of all ranks and steps: sites ("layers.P.weight", "gradient").
v1::Batch AppliedGradients(const AppliedSpec& spec);

}  // namespace plumbline::rules::testing
