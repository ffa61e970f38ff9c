// Judges a collective: its arithmetic is proved, its results are within a bound, or they are
// biased. Judges a compressed collective over steps. The entry header of this folder: code outside
// includes only this header.
#pragma once

#include "analysis/collective/analysis.h"              // IWYU pragma: export
#include "analysis/collective/broken.h"                // IWYU pragma: export
#include "analysis/collective/compression_verdict.h"   // IWYU pragma: export
#include "analysis/collective/errors.h"                // IWYU pragma: export
#include "analysis/collective/narrow_verdict.h"        // IWYU pragma: export
#include "analysis/collective/reduction_statistics.h"  // IWYU pragma: export
#include "analysis/collective/saturated.h"             // IWYU pragma: export
#include "analysis/collective/shared_result.h"         // IWYU pragma: export
#include "analysis/collective/stale_rank.h"            // IWYU pragma: export
