// Runs a router twice on tokens that differ, to test whether a later token changes an earlier one's
// expert. The entry header of this folder: code outside includes this header alone.
#pragma once

#include "analysis/routing/intervention/check_router.h"  // IWYU pragma: export
#include "analysis/routing/intervention/replay.h"        // IWYU pragma: export
