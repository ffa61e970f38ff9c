// Compares the routing of training with that of inference, for the same tokens. The entry header of
// this folder: code outside includes this header alone.
#pragma once

#include "analysis/routing/train_infer/runs.h"      // IWYU pragma: export
#include "analysis/routing/train_infer/verdicts.h"  // IWYU pragma: export
