// The header of analysis/drift/values.
#pragma once

#include "analysis/drift/values/far_outliers.h"  // IWYU pragma: export
#include "analysis/drift/values/fit.h"           // IWYU pragma: export
#include "analysis/drift/values/lattice.h"       // IWYU pragma: export
#include "analysis/drift/values/units.h"         // IWYU pragma: export
