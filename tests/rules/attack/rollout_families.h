// Families of recorded rollouts that attack the judgement: innocent ones that look guilty, guilty
// ones that look innocent. A family is one function; what is true of it is known by construction.
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
  // Far from healthy by its size alone (dropout, a long lag): a warning is no false accusation, an
  // error or a wrong cause is.
  bool large = false;
};
const std::vector<InnocentRollout>& InnocentRollouts();

struct GuiltyRollout {
  const char* name;
  v1::Batch (*make)(int seed);
  const char* rule;   // that must find it
  const char* cause;  // that some finding must name; "": none is asked for
};
const std::vector<GuiltyRollout>& GuiltyRollouts();

// Changes each sequence of a run; the number counts them.
void EachSequence(
    v1::Batch* batch,
    const std::function<void(v1::LogprobsSequence&, int64_t step, int number)>& change);
// Changes the floats of a tensor.
void EachValue(v1::Tensor* tensor, const std::function<float(float value, size_t index)>& change);

}  // namespace plumbline::rules::testing
