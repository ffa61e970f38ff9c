#include "analysis/timeline/driver_said.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace plumbline::timeline {
namespace {

// Share of the samples: brief heat does not explain a slow block.
constexpr double kHeldOften = 0.5;

// Decodes NVML's bits.
const char* HolderOfClocks(double reasons) {
  const auto bits = static_cast<uint64_t>(reasons);
  if ((bits & (0x20 | 0x40)) != 0) return "Heat";
  return (bits & 0x80) != 0 ? "The brake of the power supply" : "A hardware slowdown";
}

}  // namespace

bool IsOfDriver(const v1::Site& site) {
  if (!site.layer().empty() || !site.op().starts_with("gpu.")) return false;
  const std::string_view op = site.op();
  return op == kClocksHeldSeries || op == kClockReasonsSeries || op == kMemoryErrorsSeries ||
         op == kXidSeries;
}

void DriverStated::Hear(std::string_view series, int64_t at, double value) {
  if (!(value >= 0 && value < 1e15)) return;
  step = std::max(step, at);
  if (series == kClocksHeldSeries) held = value;
  if (series == kClockReasonsSeries) reasons = value;
  if (series == kMemoryErrorsSeries) errors = value;
  if (series == kXidSeries) xid = value;
}

void DriverStated::Persist(Archive& archive) { archive(step, held, reasons, errors, xid); }

DriverCause CauseOfDriver(const DriverStated& stated) {
  if (stated.xid > 0) {
    return {"xid", absl::StrFormat(" Its driver reports XID %.0f.", stated.xid),
            "Look the XID up (dmesg, NVIDIA's list of XID errors); drain the node."};
  }
  if (stated.errors > 0) {
    return {"memory-errors",
            absl::StrFormat(" Its driver counts %.0f uncorrected memory errors.", stated.errors),
            "Reset the GPU (this remaps rows). If errors occur again, replace it."};
  }
  if (stated.held >= kHeldOften) {
    return {"clocks-held",
            absl::StrFormat(" %s reduces its clocks, in %.0f %% of the observations.",
                            HolderOfClocks(stated.reasons), 100 * stated.held),
            "Check the cooling and power of that node (nvidia-smi -q -d CLOCK,TEMPERATURE,POWER), "
            "and replace it."};
  }
  return {};
}

}  // namespace plumbline::timeline
