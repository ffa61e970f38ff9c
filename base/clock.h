// Clocks. Monotonic time measures durations. Real time is for people and is never part of a
// verdict.
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

// Returns nanoseconds since an arbitrary point. Never goes back; pauses while the host sleeps.
inline uint64_t MonotonicNs() { return internal::ClockNs(CLOCK_MONOTONIC); }

// Converts an option's time to whole nanoseconds. |seconds| < 9e9.
inline std::chrono::nanoseconds NanosecondsOf(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

// Returns nanoseconds since the host began. Never goes back; counts while the host sleeps.
inline uint64_t BootNs() { return internal::ClockNs(CLOCK_BOOTTIME); }

// Returns nanoseconds since 1970-01-01 UTC; may jump when the clock is set.
inline uint64_t UnixNs() { return internal::ClockNs(CLOCK_REALTIME); }

}  // namespace plumbline
