// Who holds whom, by the flight recorders of a job's ranks. The room's entry.
#pragma once

#include "analysis/flight/frozen.h"    // IWYU pragma: export
#include "analysis/flight/recorder.h"  // IWYU pragma: export
