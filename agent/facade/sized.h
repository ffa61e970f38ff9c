// Structs that begin with their size: callers may be compiled with an older or a newer header.
#pragma once

#include <cstdint>
#include <cstring>

#include "agent/facade/error.h"

namespace plumbline::facade {

// Copies the caller's struct over *out, which holds the defaults of fields that the caller does not
// have. Returns false, with the thread's error text, if the size is impossible, or if a field is
// set that this library does not know.
template <typename T>
bool CopySized(const char* what, const T* given, T* out) {
  uint32_t size;
  memcpy(&size, given, sizeof(size));
  if (size < 2 * sizeof(uint32_t) || size > 65536) {
    Fail(PLUMBLINE_INVALID_ARGUMENT, "%s: size is %u; expected sizeof the struct, %zu", what, size,
         sizeof(T));
    return false;
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      Fail(PLUMBLINE_INVALID_ARGUMENT,
           "%s: a field at byte %zu is set that libplumbline %s does not know (it knows %zu bytes)",
           what, i, plumbline_version(), sizeof(T));
      return false;
    }
  }
  memcpy(static_cast<void*>(out), given, size < sizeof(T) ? size : sizeof(T));
  out->size = sizeof(T);
  return true;
}

}  // namespace plumbline::facade
