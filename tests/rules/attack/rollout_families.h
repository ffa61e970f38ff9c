// Families of rollout recordings for the attack: innocent ones that look guilty, and guilty ones
// that look innocent. A family is one function; its ground truth is known by construction.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plumbline/v1/batch.pb.h"
#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::rules::testing {

struct InnocentRollout {
  const char* name;
  v1::Batch (*make)(int seed);
  // If set, the difference is far above healthy by its size alone (dropout, a long lag). A warning
  // is allowed; an error or an incorrect cause is not.
  bool large = false;
};
const std::vector<InnocentRollout>& InnocentRollouts();

struct GuiltyRollout {
  const char* name;
  v1::Batch (*make)(int seed);
  const char* rule;   // The rule that must report it; "drift/" stands for any of these.
  const char* cause;  // The cause that some finding must name; "" if none is required.
};
const std::vector<GuiltyRollout>& GuiltyRollouts();

// Applies `change` to each sequence of a run; `number` is the sequence index.
void EachSequence(
    v1::Batch* batch,
    const std::function<void(v1::LogprobsSequence&, int64_t step, int number)>& change);
// Applies `change` to the floats of a tensor.
void EachValue(v1::Tensor* tensor, const std::function<float(float value, size_t index)>& change);

}  // namespace plumbline::rules::testing
