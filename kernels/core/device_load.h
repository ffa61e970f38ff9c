// Reads elements of any dtype, like base/load.h, but as one function that device code calls. For
// rare reads; loops over a tensor know its dtype.
#pragma once

#include "base/load.h"
#include "kernels/core/device_code.h"

namespace plumbline {

PLUMB_HD_CALLED double CalledLoadDouble(const void* data, DType t, int64_t i) {
  return LoadDouble(data, t, i);
}
PLUMB_HD_CALLED int64_t CalledLoadInt64(const void* data, DType t, int64_t i) {
  return LoadInt64(data, t, i);
}

}  // namespace plumbline
