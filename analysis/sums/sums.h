// Sums as trees: what a library's sums do inside, told from their outputs alone, and contracts on
// it. The room's entry: who stands outside includes this header alone.
#pragma once

#include "analysis/sums/contract.h"     // IWYU pragma: export
#include "analysis/sums/fingerprint.h"  // IWYU pragma: export
#include "analysis/sums/model_text.h"   // IWYU pragma: export
#include "analysis/sums/rounding.h"     // IWYU pragma: export
#include "analysis/sums/sum_model.h"    // IWYU pragma: export
#include "analysis/sums/target.h"       // IWYU pragma: export
