// Digests of the batches that a run was trained on. The entry header of this folder.
#pragma once

#include "analysis/batches/batch_history.h"  // IWYU pragma: export
#include "analysis/batches/epoch_end.h"      // IWYU pragma: export
#include "analysis/batches/equal_batches.h"  // IWYU pragma: export
