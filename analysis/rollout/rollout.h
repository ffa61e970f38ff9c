// Sampled sequences, joined from both programs: is the record true, and did the sampler follow
// its law? The room's entry: who stands outside includes this header alone.
#pragma once

#include "analysis/rollout/join.h"            // IWYU pragma: export
#include "analysis/rollout/record.h"          // IWYU pragma: export
#include "analysis/rollout/sampler.h"         // IWYU pragma: export
#include "analysis/rollout/sequence.h"        // IWYU pragma: export
#include "analysis/rollout/sequence_times.h"  // IWYU pragma: export
#include "analysis/rollout/slices.h"          // IWYU pragma: export
#include "analysis/rollout/turns.h"           // IWYU pragma: export
