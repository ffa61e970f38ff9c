// Tests whether applied gradients are complete sums over the ranks. The entry header of this
// folder: code outside includes this header alone.
#pragma once

#include "analysis/completeness/applied_gradient.h"  // IWYU pragma: export
#include "analysis/completeness/gradient_judge.h"    // IWYU pragma: export
