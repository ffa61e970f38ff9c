// Estimates the combined value of stacked compute multipliers. The entry header of this folder:
// code outside includes this header alone.
#pragma once

#include "calculators/ledger/checks.h"         // IWYU pragma: export
#include "calculators/ledger/estimate.h"       // IWYU pragma: export
#include "calculators/ledger/input.h"          // IWYU pragma: export
#include "calculators/ledger/next_ablation.h"  // IWYU pragma: export
