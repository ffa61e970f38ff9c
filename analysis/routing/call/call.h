// One recorded router call, decoded and checked: the choices, which of them were kept, and which
// experts were full. The entry header of this folder: code outside includes this header alone.
#pragma once

#include "analysis/routing/call/capacity.h"      // IWYU pragma: export
#include "analysis/routing/call/case.h"          // IWYU pragma: export
#include "analysis/routing/call/facts.h"         // IWYU pragma: export
#include "analysis/routing/call/join.h"          // IWYU pragma: export
#include "analysis/routing/call/keys.h"          // IWYU pragma: export
#include "analysis/routing/call/near_repeats.h"  // IWYU pragma: export
#include "analysis/routing/call/options.h"       // IWYU pragma: export
