// The routing of training beside the routing of inference, of the same tokens. The room's entry:
// who stands outside includes this header alone.
#pragma once

#include "analysis/routing/train_infer/runs.h"      // IWYU pragma: export
#include "analysis/routing/train_infer/verdicts.h"  // IWYU pragma: export
