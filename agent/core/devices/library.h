// libplumbline_cuda.so: found and opened when the first CUDA tensor comes, never before.
#pragma once

#include <string>

#include "kernels/device/table.h"

namespace plumbline::agent {

// The table, tried once a process: PLUMBLINE_CUDA_LIBRARY, else beside this library. Null, and
// *error: what is missing and where it was looked for. Any thread.
const DeviceTable* LoadDeviceLibrary(DeviceError* error);

// A library of the host's, which stays; nobody forks meanwhile. nullptr, and *why. Any thread.
void* OpenOfHost(const std::string& name, std::string* why);

}  // namespace plumbline::agent
