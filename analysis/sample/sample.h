// Tensors of samples: checked, and read by row. The entry header of this folder: code outside
// includes this header alone.
#pragma once

#include "analysis/sample/tensor_reader.h"  // IWYU pragma: export
#include "analysis/sample/values.h"         // IWYU pragma: export
