// Finds the accumulator that gave the sampled elements of a matrix product, and whether it is the
// declared one. The entry header of this folder: code outside includes this header alone.
#pragma once

#include "analysis/product/analysis.h"        // IWYU pragma: export
#include "analysis/product/case.h"            // IWYU pragma: export
#include "analysis/product/held_contracts.h"  // IWYU pragma: export
#include "analysis/product/requested.h"       // IWYU pragma: export
