// Proofs about a recorded router call, and the evidence against them. The entry header of this
// folder: code outside includes this header alone.
#pragma once

#include "analysis/routing/analysis.h"          // IWYU pragma: export
#include "analysis/routing/calls_together.h"    // IWYU pragma: export
#include "analysis/routing/capacity_history.h"  // IWYU pragma: export
#include "analysis/routing/causes.h"            // IWYU pragma: export
#include "analysis/routing/checked.h"           // IWYU pragma: export
#include "analysis/routing/declared_queue.h"    // IWYU pragma: export
#include "analysis/routing/innocent.h"          // IWYU pragma: export
#include "analysis/routing/reasons.h"           // IWYU pragma: export
