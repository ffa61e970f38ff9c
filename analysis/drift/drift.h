// Measures how far training and inference are apart, whether the difference averages out, and its
// cause. The entry header of this folder: code outside includes this header alone.
#pragma once

#include "analysis/drift/change.h"         // IWYU pragma: export
#include "analysis/drift/course.h"         // IWYU pragma: export
#include "analysis/drift/details.h"        // IWYU pragma: export
#include "analysis/drift/episode.h"        // IWYU pragma: export
#include "analysis/drift/logits.h"         // IWYU pragma: export
#include "analysis/drift/marks.h"          // IWYU pragma: export
#include "analysis/drift/run.h"            // IWYU pragma: export
#include "analysis/drift/weights_cause.h"  // IWYU pragma: export
