// One element from a tensor to dense memory, whatever its size.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace plumbline::internal {

PLUMB_HD inline void CopyElement(const void* from, int64_t at, uint32_t size, unsigned char* to,
                                 int64_t i) {
  switch (size) {
    case 8:
      reinterpret_cast<uint64_t*>(to)[i] = static_cast<const uint64_t*>(from)[at];
      break;
    case 4:
      reinterpret_cast<uint32_t*>(to)[i] = static_cast<const uint32_t*>(from)[at];
      break;
    case 2:
      reinterpret_cast<uint16_t*>(to)[i] = static_cast<const uint16_t*>(from)[at];
      break;
    default:
      to[i] = static_cast<const unsigned char*>(from)[at];
  }
}

}  // namespace plumbline::internal
