// What the driver of a rank's GPU says of its health, as the agent reports it in series beside a
// block of steps (agent/core/devices/gpu_health.h), and what that explains.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

inline constexpr std::string_view kClocksHeldSeries = "gpu.clocks_held";      // share of the looks
inline constexpr std::string_view kClockReasonsSeries = "gpu.clock_reasons";  // NVML's bits
inline constexpr std::string_view kMemoryErrorsSeries = "gpu.ecc_uncorrected";
inline constexpr std::string_view kXidSeries = "gpu.xid";  // the last; 0: none

bool IsOfDriver(const v1::Site& site);

struct DriverSaid {
  int64_t step = -1;  // the newest of which anything was said
  double held = 0, reasons = 0, errors = 0, xid = 0;

  // A value of one of the series; what is no number of theirs is passed over.
  void Hear(std::string_view series, int64_t at, double value);
  void Persist(Archive& archive);
};

// Why a GPU is slow, as far as its driver tells it. Empty id: it does not.
struct DriverCause {
  std::string_view id;  // "xid", "memory-errors", "clocks-held"
  std::string words;    // a sentence, after a blank
  std::string fix;
};
DriverCause CauseOfDriver(const DriverSaid& said);

}  // namespace plumbline::timeline
