// Finds how the time of a rank is spent. The entry header of this folder: code outside includes
// this header alone.
#pragma once

#include "analysis/timeline/bottleneck.h"   // IWYU pragma: export
#include "analysis/timeline/collectives.h"  // IWYU pragma: export
#include "analysis/timeline/columns.h"      // IWYU pragma: export
#include "analysis/timeline/comb.h"         // IWYU pragma: export
#include "analysis/timeline/driver_said.h"  // IWYU pragma: export
#include "analysis/timeline/intervals.h"    // IWYU pragma: export
#include "analysis/timeline/loop.h"         // IWYU pragma: export
#include "analysis/timeline/names.h"        // IWYU pragma: export
#include "analysis/timeline/stragglers.h"   // IWYU pragma: export
