// Clocks. Monotonic time measures durations; real time is for people and never part of a verdict.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace plumbline {

namespace internal {
inline uint64_t ClockNs(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000ull + static_cast<uint64_t>(t.tv_nsec);
}
}  // namespace internal

// Nanoseconds since an arbitrary point; never goes back; stands still while the host sleeps.
inline uint64_t MonotonicNs() { return internal::ClockNs(CLOCK_MONOTONIC); }

// A time of an option, in whole nanoseconds. |seconds| < 9e9.
inline std::chrono::nanoseconds NanosecondsOf(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

// Nanoseconds since the host began; never goes back; counts while the host sleeps.
inline uint64_t BootNs() { return internal::ClockNs(CLOCK_BOOTTIME); }

// Nanoseconds since 1970-01-01 UTC; may jump when the clock is set.
inline uint64_t UnixNs() { return internal::ClockNs(CLOCK_REALTIME); }

}  // namespace plumbline
