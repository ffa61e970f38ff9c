// Estimates the combined value of stacked compute multipliers. The entry header of this folder:
// code outside includes this header alone.
#pragma once

#include "analysis/ledger/checks.h"         // IWYU pragma: export
#include "analysis/ledger/estimate.h"       // IWYU pragma: export
#include "analysis/ledger/input.h"          // IWYU pragma: export
#include "analysis/ledger/next_ablation.h"  // IWYU pragma: export
