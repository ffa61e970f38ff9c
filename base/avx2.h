// For functions that use AVX2, in programs for any processor. Each such function is marked, and is
// called only if the processor has AVX2.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

// Includes FMA and F16C, which nearly all such processors have.
#define PLUMB_AVX2 __attribute__((target("avx2,f16c,fma,popcnt")))
#define PLUMB_AVX2_INLINE PLUMB_AVX2 __attribute__((always_inline)) static inline
#endif

namespace plumbline {

// Returns true if this processor and its system run functions marked PLUMB_AVX2.
inline bool HasAvx2() {
#if defined(__x86_64__)
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;  // clang 14 has no name for F16C
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
           __builtin_cpu_supports("popcnt") != 0 && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
           (c & bit_F16C) != 0;
  }();
  return has;
#else
  return false;
#endif
}

}  // namespace plumbline
