// The input and output types of every rule and analysis: closed steps, runs, options, verdicts. The
// entry header of this folder: code outside includes this header alone.
#pragma once

#include "analysis/frame/archive_proto.h"    // IWYU pragma: export
#include "analysis/frame/finding_builder.h"  // IWYU pragma: export
#include "analysis/frame/fingerprint.h"      // IWYU pragma: export
#include "analysis/frame/hash_fields.h"      // IWYU pragma: export
#include "analysis/frame/item_verdicts.h"    // IWYU pragma: export
#include "analysis/frame/level_name.h"       // IWYU pragma: export
#include "analysis/frame/options.h"          // IWYU pragma: export
#include "analysis/frame/run_summary.h"      // IWYU pragma: export
#include "analysis/frame/scalar_rows.h"      // IWYU pragma: export
#include "analysis/frame/site_memo.h"        // IWYU pragma: export
#include "analysis/frame/step.h"             // IWYU pragma: export
#include "analysis/frame/step_cache.h"       // IWYU pragma: export
#include "analysis/frame/step_looks.h"       // IWYU pragma: export
#include "analysis/frame/verdict_sink.h"     // IWYU pragma: export
#include "analysis/frame/verdicts.h"         // IWYU pragma: export
