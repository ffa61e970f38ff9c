// What weights show from one observation to the next. The room's entry: who stands outside
// includes this header alone.
#pragma once

#include "analysis/weights/weight_look.h"   // IWYU pragma: export
#include "analysis/weights/weight_names.h"  // IWYU pragma: export
