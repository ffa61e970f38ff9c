// Finds which ranks block which, from the flight recorders of a job's ranks. The entry header of
// this folder.
#pragma once

#include "analysis/flight/frozen.h"    // IWYU pragma: export
#include "analysis/flight/recorder.h"  // IWYU pragma: export
