// Series of scalars: what they are by name, and what happens to one as its points come. The room's
// entry.
#pragma once

#include "analysis/role/role.h"                 // IWYU pragma: export
#include "analysis/series/creep.h"              // IWYU pragma: export
#include "analysis/series/detector.h"           // IWYU pragma: export
#include "analysis/series/excursion.h"          // IWYU pragma: export
#include "analysis/series/judged_series.h"      // IWYU pragma: export
#include "analysis/series/non_finite_course.h"  // IWYU pragma: export
#include "analysis/series/norm_series.h"        // IWYU pragma: export
#include "analysis/series/overfit.h"            // IWYU pragma: export
#include "analysis/series/rate_watch.h"         // IWYU pragma: export
#include "analysis/series/robust.h"             // IWYU pragma: export
#include "analysis/series/scaler_watch.h"       // IWYU pragma: export
#include "analysis/series/skipped.h"            // IWYU pragma: export
#include "analysis/series/standing.h"           // IWYU pragma: export
