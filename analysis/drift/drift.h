// How far training and inference are apart, whether it averages out, and why. The room's entry:
// who stands outside includes this header alone.
#pragma once

#include "analysis/drift/change.h"   // IWYU pragma: export
#include "analysis/drift/details.h"  // IWYU pragma: export
#include "analysis/drift/logits.h"   // IWYU pragma: export
#include "analysis/drift/run.h"      // IWYU pragma: export
