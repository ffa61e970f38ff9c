// Tests that may be evaluated at any time, and the division of their alpha. The entry header of
// this folder: code outside includes this header alone.
#pragma once

#include "analysis/statistics/alpha_shares.h"   // IWYU pragma: export
#include "analysis/statistics/bias_forecast.h"  // IWYU pragma: export
#include "analysis/statistics/bias_stream.h"    // IWYU pragma: export
#include "analysis/statistics/cluster_sums.h"   // IWYU pragma: export
#include "analysis/statistics/context_sums.h"   // IWYU pragma: export
#include "analysis/statistics/e_bh.h"           // IWYU pragma: export
#include "analysis/statistics/student.h"        // IWYU pragma: export
#include "analysis/statistics/sum_error.h"      // IWYU pragma: export
