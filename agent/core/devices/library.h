// libplumbline_cuda.so: found and opened when the first CUDA tensor comes, never before.
#pragma once

#include "kernels/device/table.h"

namespace plumbline::agent {

// The table, tried once a process: PLUMBLINE_CUDA_LIBRARY, else beside this library. Null, and
// *error: what is missing and where it was looked for. Any thread.
const DeviceTable* LoadDeviceLibrary(DeviceError* error);

}  // namespace plumbline::agent
