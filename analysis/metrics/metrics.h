// Logged numbers against measured ones. The entry header of this folder: code outside includes this
// header alone.
#pragma once

#include "analysis/metrics/factor_origin.h"    // IWYU pragma: export
#include "analysis/metrics/logged_metric.h"    // IWYU pragma: export
#include "analysis/metrics/measured_values.h"  // IWYU pragma: export
