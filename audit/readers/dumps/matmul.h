// Dumps of kind `matmul`: rows, columns and sampled elements of a matrix product.
#pragma once

#include "audit/readers/dumps/kind.h"

namespace plumbline::audit {

extern const DumpKind kMatmulDump;

}  // namespace plumbline::audit
