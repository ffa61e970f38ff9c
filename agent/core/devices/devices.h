// A run's devices: the probe of probes/device/probe.h, given the device library and a way out of
// the process that the library's own end does not overtake.
#pragma once

#include <atomic>
#include <memory>

#include "agent/core/shared/options.h"
#include "agent/core/sites/losses.h"
#include "agent/core/sites/slots.h"
#include "probes/device/probe.h"

namespace plumbline::agent {

// What of a head goes through a device's ring.
inline probes::DeviceTag TagOf(const SlotHead& head) {
  return {head.site, head.step, head.call, head.sampled, head.order};
}

// Nothing is loaded or allocated before the first device tensor.
std::shared_ptr<probes::DeviceProbe> MakeDeviceProbe(const AgentOptions& options);

// The cause under which a call that a device did not take, or not whole, is counted.
LossCause LossOf(probes::DeviceOutcome outcome);

// Says on standard error, once a flag, why device tensors are not measured.
void TellOfDevice(std::atomic<bool>* told, const DeviceError& why);

}  // namespace plumbline::agent
