// Analyses one rank's running sum over the micro-batches of a step. The entry header of this
// folder: code outside includes this header alone.
#pragma once

#include "analysis/accumulation/accumulation_case.h"        // IWYU pragma: export
#include "analysis/accumulation/accumulation_replay.h"      // IWYU pragma: export
#include "analysis/accumulation/accumulation_statistics.h"  // IWYU pragma: export
#include "analysis/accumulation/left_gradient.h"            // IWYU pragma: export
