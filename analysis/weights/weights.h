// Compares weights from one observation to the next. The entry header of this folder: code outside
// includes this header alone.
#pragma once

#include "analysis/weights/attempt_course.h"  // IWYU pragma: export
#include "analysis/weights/average_course.h"  // IWYU pragma: export
#include "analysis/weights/average_follow.h"  // IWYU pragma: export
#include "analysis/weights/change_course.h"   // IWYU pragma: export
#include "analysis/weights/held_moments.h"    // IWYU pragma: export
#include "analysis/weights/kept_state.h"      // IWYU pragma: export
#include "analysis/weights/left_course.h"     // IWYU pragma: export
#include "analysis/weights/moment_course.h"   // IWYU pragma: export
#include "analysis/weights/saved_weights.h"   // IWYU pragma: export
#include "analysis/weights/weight_course.h"   // IWYU pragma: export
#include "analysis/weights/weight_look.h"     // IWYU pragma: export
#include "analysis/weights/weight_names.h"    // IWYU pragma: export
#include "analysis/weights/zero_course.h"     // IWYU pragma: export
#include "analysis/weights/zero_step.h"       // IWYU pragma: export
