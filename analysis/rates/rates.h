// Learning rates: their names, and their course over steps and resumes. The entry header of this
// folder: code outside includes this header alone.
#pragma once

#include "analysis/rates/apart.h"            // IWYU pragma: export
#include "analysis/rates/odd_rate.h"         // IWYU pragma: export
#include "analysis/rates/rank_rate.h"        // IWYU pragma: export
#include "analysis/rates/rate_course.h"      // IWYU pragma: export
#include "analysis/rates/rate_name.h"        // IWYU pragma: export
#include "analysis/rates/rate_neighbours.h"  // IWYU pragma: export
#include "analysis/rates/rate_stem.h"        // IWYU pragma: export
#include "analysis/rates/rate_verdicts.h"    // IWYU pragma: export
#include "analysis/rates/seen_resumes.h"     // IWYU pragma: export
