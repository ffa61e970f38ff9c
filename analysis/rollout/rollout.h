// Joins sampled sequences from both programs. Tests whether the record is true, and whether the
// sampler drew from the logged distribution. The entry header of this folder: code outside includes
// only this header.
#pragma once

#include "analysis/rollout/join.h"            // IWYU pragma: export
#include "analysis/rollout/missing.h"         // IWYU pragma: export
#include "analysis/rollout/record.h"          // IWYU pragma: export
#include "analysis/rollout/sampler.h"         // IWYU pragma: export
#include "analysis/rollout/sequence.h"        // IWYU pragma: export
#include "analysis/rollout/sequence_times.h"  // IWYU pragma: export
#include "analysis/rollout/slices.h"          // IWYU pragma: export
#include "analysis/rollout/turns.h"           // IWYU pragma: export
