// Analyses of a tensor, an update or a cast. The entry header of this folder: code outside includes
// this header alone.
#pragma once

#include "analysis/tensor/block_fit_tensor.h"     // IWYU pragma: export
#include "analysis/tensor/block_fit_verdict.h"    // IWYU pragma: export
#include "analysis/tensor/cast_mass.h"            // IWYU pragma: export
#include "analysis/tensor/loss_means.h"           // IWYU pragma: export
#include "analysis/tensor/non_finite_late.h"      // IWYU pragma: export
#include "analysis/tensor/non_finite_sighting.h"  // IWYU pragma: export
#include "analysis/tensor/non_finite_trace.h"     // IWYU pragma: export
#include "analysis/tensor/non_finite_words.h"     // IWYU pragma: export
#include "analysis/tensor/position_rows.h"        // IWYU pragma: export
#include "analysis/tensor/probability_rows.h"     // IWYU pragma: export
#include "analysis/tensor/ratio_course.h"         // IWYU pragma: export
#include "analysis/tensor/stochastic_chance.h"    // IWYU pragma: export
#include "analysis/tensor/update_options.h"       // IWYU pragma: export
#include "analysis/tensor/update_pool.h"          // IWYU pragma: export
#include "analysis/tensor/update_side.h"          // IWYU pragma: export
#include "analysis/tensor/update_window.h"        // IWYU pragma: export
