// Judges one collective as proved, bounded or biased, and a compressed one over steps. The entry
// header of this folder: code outside includes this header alone.
#pragma once

#include "analysis/collective/analysis.h"              // IWYU pragma: export
#include "analysis/collective/broken.h"                // IWYU pragma: export
#include "analysis/collective/compression_verdict.h"   // IWYU pragma: export
#include "analysis/collective/errors.h"                // IWYU pragma: export
#include "analysis/collective/narrow_verdict.h"        // IWYU pragma: export
#include "analysis/collective/reduction_statistics.h"  // IWYU pragma: export
#include "analysis/collective/saturated.h"             // IWYU pragma: export
#include "analysis/collective/shared_result.h"         // IWYU pragma: export
