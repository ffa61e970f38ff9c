// Finds the arithmetic and the order that give a collective's results bit for bit. The entry header
// of this folder: code outside includes this header alone.
#pragma once

#include "analysis/collective/replay/candidates.h"  // IWYU pragma: export
#include "analysis/collective/replay/replayed.h"    // IWYU pragma: export
