// The scalars that trainers of reinforcement learning log. The entry header of this folder.
#pragma once

#include "analysis/policy/collapse_courses.h"  // IWYU pragma: export
#include "analysis/policy/mismatch_course.h"   // IWYU pragma: export
#include "analysis/policy/policy_metric.h"     // IWYU pragma: export
#include "analysis/policy/policy_series.h"     // IWYU pragma: export
#include "analysis/policy/zero_counts.h"       // IWYU pragma: export
