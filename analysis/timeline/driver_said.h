// The health of a rank's GPU as its driver reports it. The agent sends it in series along with a
// block of steps (agent/core/devices/gpu_health.h). Also finds what it explains.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

inline constexpr std::string_view kClocksHeldSeries = "gpu.clocks_held";  // share of the samples
inline constexpr std::string_view kClockReasonsSeries = "gpu.clock_reasons";  // NVML's bits
inline constexpr std::string_view kMemoryErrorsSeries = "gpu.ecc_uncorrected";
inline constexpr std::string_view kXidSeries = "gpu.xid";  // the last one; 0 if none

bool IsOfDriver(const v1::Site& site);

struct DriverStated {
  int64_t step = -1;  // the newest step with a report
  double held = 0, reasons = 0, errors = 0, xid = 0;

  // Takes a value of one of the series. Ignores invalid values.
  void Hear(std::string_view series, int64_t at, double value);
  void Persist(Archive& archive);
};

// Why a GPU is slow, as far as its driver reports it. If it does not, the id is empty.
struct DriverCause {
  std::string_view id;  // "xid", "memory-errors", "clocks-held"
  std::string words;    // a sentence with a leading blank
  std::string fix;
};
DriverCause CauseOfDriver(const DriverStated& stated);

}  // namespace plumbline::timeline
