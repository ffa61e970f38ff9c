// A run's devices: the probe of probes/device/probe.h with the device library, and a shutdown that
// runs before the library's own end.
#pragma once

#include <atomic>
#include <memory>

#include "agent/core/shared/options.h"
#include "agent/core/sites/losses.h"
#include "agent/core/sites/slots.h"
#include "probes/device/probe.h"

namespace plumbline::agent {

// Returns the parts of a head that pass through a device's ring.
inline probes::DeviceTag TagOf(const SlotHead& head) {
  return {head.site, head.step, head.call, head.sampled, head.order};
}

// Creates the probe. Loads and allocates nothing before the first device tensor.
std::shared_ptr<probes::DeviceProbe> MakeDeviceProbe(const AgentOptions& options);

// Returns the cause under which a call is counted if a device did not take it, or took only a part.
LossCause LossOf(probes::DeviceOutcome outcome);

// Prints on standard error, once per flag, why device tensors are not measured.
void ReportDevice(std::atomic<bool>* reported, const DeviceError& why);

}  // namespace plumbline::agent
