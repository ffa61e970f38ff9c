// Replays policies on a recorded call to find those that give every assignment. The entry header of
// this folder: code outside includes this header alone.
#pragma once

#include "analysis/routing/policies/balance.h"       // IWYU pragma: export
#include "analysis/routing/policies/cell_keys.h"     // IWYU pragma: export
#include "analysis/routing/policies/columns.h"       // IWYU pragma: export
#include "analysis/routing/policies/first_come.h"    // IWYU pragma: export
#include "analysis/routing/policies/normalised.h"    // IWYU pragma: export
#include "analysis/routing/policies/nothing_kept.h"  // IWYU pragma: export
#include "analysis/routing/policies/own_refusals.h"  // IWYU pragma: export
#include "analysis/routing/policies/pairs.h"         // IWYU pragma: export
#include "analysis/routing/policies/patterns.h"      // IWYU pragma: export
#include "analysis/routing/policies/queue.h"         // IWYU pragma: export
#include "analysis/routing/policies/ranked.h"        // IWYU pragma: export
#include "analysis/routing/policies/thresholds.h"    // IWYU pragma: export
#include "analysis/routing/policies/token_axis.h"    // IWYU pragma: export
