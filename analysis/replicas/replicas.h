// Checks on data of which ranks must hold equal copies. The entry header of this folder: code
// outside includes this header alone.
#pragma once

#include "analysis/replicas/copy_checksums.h"  // IWYU pragma: export
#include "analysis/replicas/equal_inputs.h"    // IWYU pragma: export
#include "analysis/replicas/equal_losses.h"    // IWYU pragma: export
#include "analysis/replicas/parted_copies.h"   // IWYU pragma: export
#include "analysis/replicas/replica_copies.h"  // IWYU pragma: export
