// The device library, opened as the agent opens it: its CUDA runtime is apart from this program's,
// which plays the trainer.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "kernels/device/table.h"

namespace plumbline {

// PLUMBLINE_CUDA_LIBRARY, else ../lib from this program, so that a build folder may be moved.
inline std::string DeviceLibraryPath() {
  if (const char* chosen = std::getenv("PLUMBLINE_CUDA_LIBRARY")) return chosen;
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
  std::string path(self, n > 0 ? static_cast<size_t>(n) : 0);
  path.resize(path.rfind('/') + 1);
  return path + "../lib/libplumbline_cuda.so";
}

// Null, and *why.
inline const DeviceTable* OpenDeviceLibrary(std::string* why) {
  void* library = dlopen(DeviceLibraryPath().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *why = dlerror();
    return nullptr;
  }
  const auto* table = static_cast<const DeviceTable*>(dlsym(library, kDeviceTableSymbol));
  if (table == nullptr) *why = std::string("no ") + kDeviceTableSymbol;
  return table;
}

}  // namespace plumbline
