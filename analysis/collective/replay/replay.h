// Which arithmetic and which order gave a collective's results, to the bit. The room's entry: who
// stands outside includes this header alone.
#pragma once

#include "analysis/collective/replay/candidates.h"  // IWYU pragma: export
#include "analysis/collective/replay/replayed.h"    // IWYU pragma: export
