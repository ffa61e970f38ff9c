// Dumps of kind `matmul`: rows, columns and sampled elements of a matrix product.
#pragma once

#include "audit/readers/dump_kind.h"

namespace plumbline::audit {

extern const DumpKind kMatmulDump;

}  // namespace plumbline::audit
