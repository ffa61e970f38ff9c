// The load of experts over steps, beside what chance alone would do. The room's entry: who stands
// outside includes this header alone.
#pragma once

#include "analysis/experts/chance.h"  // IWYU pragma: export
#include "analysis/experts/steps.h"   // IWYU pragma: export
