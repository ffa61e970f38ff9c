// Families of rollout recordings whose tokens are chosen after they were drawn: masks that follow
// the ratio, values that are missing for rare tokens, copies of sequences. And recordings whose
// first tokens differ, or one worker. Each is innocent, or guilty if `guilty` is set: then the
// sampler or the record is wrong as well.
#pragma once

#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

struct ChosenRollout {
  const char* name;
  v1::Batch (*make)(int seed, bool guilty);
};
const std::vector<ChosenRollout>& ChosenRollouts();

// Returns a run whose first tokens of each response differ: through a stale prefix cache if
// `guilty`, else because these tokens are less likely, or because updates arrive inside sequences.
v1::Batch FirstTokensDiffer(int seed, bool guilty);

// Returns a run of eight workers with two to three sequences each. If `guilty`, one of them samples
// at another temperature.
v1::Batch OneWorkerOfEight(int seed, bool guilty);

}  // namespace plumbline::rules::testing
