// Opens the device library like the agent: its CUDA runtime is separate from that of this program,
// which acts as the trainer.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "kernels/device/table.h"

namespace plumbline {

// Returns PLUMBLINE_CUDA_LIBRARY; if it is not set, ../lib relative to this program, so that a
// build folder can be moved.
inline std::string DeviceLibraryPath() {
  if (const char* chosen = std::getenv("PLUMBLINE_CUDA_LIBRARY")) return chosen;
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
  std::string path(self, n > 0 ? static_cast<size_t>(n) : 0);
  path.resize(path.rfind('/') + 1);
  return path + "../lib/libplumbline_cuda.so";
}

// On failure, returns null and sets *why.
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
