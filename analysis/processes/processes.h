// Verdicts on processes that end, hang or report late. The entry header of this folder: code
// outside includes this header alone.
#pragma once

#include "analysis/processes/absent_verdict.h"      // IWYU pragma: export
#include "analysis/processes/hang_verdict.h"        // IWYU pragma: export
#include "analysis/processes/late_verdict.h"        // IWYU pragma: export
#include "analysis/processes/process_end.h"         // IWYU pragma: export
#include "analysis/processes/quarantine_verdict.h"  // IWYU pragma: export
#include "analysis/processes/stopped_verdict.h"     // IWYU pragma: export
