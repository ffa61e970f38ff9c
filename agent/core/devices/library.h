// Finds libplumbline_cuda.so and opens it with the first CUDA tensor, never before.
#pragma once

#include <string>

#include "kernels/device/table.h"

namespace plumbline::agent {

// Returns the table. Tries once per process: PLUMBLINE_CUDA_LIBRARY, else next to this library.
// If the library is missing, returns null and sets *error to the searched places. Thread-safe.
const DeviceTable* LoadDeviceLibrary(DeviceError* error);

// Opens a library of the host, which stays open; forks wait meanwhile. Returns nullptr and sets
// *why. Thread-safe.
void* OpenOfHost(const std::string& name, std::string* why);

}  // namespace plumbline::agent
