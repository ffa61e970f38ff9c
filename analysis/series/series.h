// Series of scalars: their role by name, and the detectors that take their points. The entry header
// of this folder.
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
