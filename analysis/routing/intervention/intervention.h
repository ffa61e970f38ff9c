// A router run twice on tokens that differ: does a later one change an earlier one's expert? The
// room's entry: who stands outside includes this header alone.
#pragma once

#include "analysis/routing/intervention/check_router.h"  // IWYU pragma: export
#include "analysis/routing/intervention/replay.h"        // IWYU pragma: export
