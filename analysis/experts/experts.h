// Compares the load of experts over steps with the effect of chance. The entry header of this
// folder: code outside includes this header alone.
#pragma once

#include "analysis/experts/chance.h"  // IWYU pragma: export
#include "analysis/experts/steps.h"   // IWYU pragma: export
