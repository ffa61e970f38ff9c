// Sums as trees: finds how a library's sums are computed from their outputs alone, and keeps
// contracts on it. The entry header of this folder: code outside includes this header alone.
#pragma once

#include "analysis/sums/contract.h"     // IWYU pragma: export
#include "analysis/sums/fingerprint.h"  // IWYU pragma: export
#include "analysis/sums/model_text.h"   // IWYU pragma: export
#include "analysis/sums/rounding.h"     // IWYU pragma: export
#include "analysis/sums/sum_model.h"    // IWYU pragma: export
#include "analysis/sums/target.h"       // IWYU pragma: export
