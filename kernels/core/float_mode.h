// Sets the floating-point mode of a measurement. Trainers flush subnormals to zero on their threads
// (torch.set_flush_denormal), and a measurement in that mode would not see them. Within a scope of
// this class the calling thread rounds to nearest and keeps subnormals. The destructor restores the
// former mode.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace plumbline {

#if defined(__SSE2__)

class StandardFloatMode {
 public:
  StandardFloatMode() : before_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~StandardFloatMode() { _mm_setcsr(before_); }
  StandardFloatMode(const StandardFloatMode&) = delete;
  StandardFloatMode& operator=(const StandardFloatMode&) = delete;

 private:
  static constexpr unsigned kDefault = 0x1f80;  // exceptions masked, nearest, no flushing
  unsigned before_;
};

#elif defined(__aarch64__)

class StandardFloatMode {
 public:
  StandardFloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}) : "memory");
  }
  ~StandardFloatMode() { asm volatile("msr fpcr, %0" : : "r"(before_) : "memory"); }
  StandardFloatMode(const StandardFloatMode&) = delete;
  StandardFloatMode& operator=(const StandardFloatMode&) = delete;

 private:
  uint64_t before_;
};

#else

class StandardFloatMode {
 public:
  StandardFloatMode() {}
  ~StandardFloatMode() {}
};

#endif

}  // namespace plumbline
