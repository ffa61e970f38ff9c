// Tensors of samples: checked, and read by row. The room's entry: who stands outside includes
// this header alone.
#pragma once

#include "analysis/sample/tensor_reader.h"  // IWYU pragma: export
#include "analysis/sample/values.h"         // IWYU pragma: export
