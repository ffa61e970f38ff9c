#include "agent/core/devices/devices.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "agent/core/devices/library.h"
#include "base/mutex.h"

namespace plumbline::agent {
namespace {

constexpr std::chrono::milliseconds kExitWait(1000);

// The probes with devices in use. Never freed: exit handlers run late.
struct InUse {
  Mutex mutex;
  std::vector<std::weak_ptr<probes::DeviceProbe>> probes PLUMB_GUARDED_BY(mutex);
  // Set once, before BeforeExit is registered, which reads it without the lock: in a forked child,
  // a thread that no longer exists may hold the lock.
  pid_t process = 0;
};
InUse& AllInUse() {
  static auto* all = new InUse;
  return *all;
}

// The façade's exit handler closes runs that were not closed. The CUDA runtime has an exit handler
// too, which was registered later and would run first: the devices' measurements must be fetched
// before that.
void BeforeExit() {
  InUse& all = AllInUse();
  if (getpid() != all.process) return;
  const auto deadline = probes::DeviceProbe::Clock::now() + kExitWait;
  const MutexLock lock(all.mutex);
  for (const auto& weak : all.probes) {
    if (const auto probe = weak.lock()) probe->Leave(deadline);
  }
}

void LeaveBeforeExit(const std::weak_ptr<probes::DeviceProbe>& probe) {
  InUse& all = AllInUse();
  const MutexLock lock(all.mutex);
  std::erase_if(all.probes, [](const auto& weak) { return weak.expired(); });
  if (all.process == 0) {
    all.process = getpid();
    std::atexit(BeforeExit);
  }
  all.probes.push_back(probe);
}

}  // namespace

std::shared_ptr<probes::DeviceProbe> MakeDeviceProbe(const AgentOptions& options) {
  probes::DeviceLimits limits;
  limits.ring_bytes = options.device_ring_bytes;
  limits.sample_max_bytes = options.sample_max_bytes;
  const auto self = std::make_shared<std::weak_ptr<probes::DeviceProbe>>();
  auto probe = std::make_shared<probes::DeviceProbe>(LoadDeviceLibrary, limits,
                                                     [self] { LeaveBeforeExit(*self); });
  *self = probe;
  return probe;
}

LossCause LossOf(probes::DeviceOutcome outcome) {
  switch (outcome) {
    case probes::DeviceOutcome::kTaken:  // no loss
    case probes::DeviceOutcome::kTakenWithoutRows:
      return LossCause::kSampleRing;
    case probes::DeviceOutcome::kStarting:
      return LossCause::kDeviceStarting;
    case probes::DeviceOutcome::kRingFull:
      return LossCause::kDeviceRing;
    case probes::DeviceOutcome::kTooManyStreams:
      return LossCause::kDeviceStreams;
    case probes::DeviceOutcome::kCapturing:
      return LossCause::kCapturing;
    case probes::DeviceOutcome::kTooManyCaptured:
      return LossCause::kTooManyCaptured;
    case probes::DeviceOutcome::kOtherContext:
      return LossCause::kDeviceContext;
    case probes::DeviceOutcome::kRefused:
      return LossCause::kInvalid;
    case probes::DeviceOutcome::kNotLoaded:
      return LossCause::kDevice;
    case probes::DeviceOutcome::kFailed:
      break;
  }
  return LossCause::kDeviceFailed;
}

void ReportDevice(std::atomic<bool>* reported, const DeviceError& why) {
  if (reported->load(std::memory_order_relaxed) || reported->exchange(true)) return;
  std::fprintf(stderr,
               "plumbline: CUDA tensors are not measured: %s. They are counted as lost; the "
               "trainer continues.\n",
               why.text);
}

}  // namespace plumbline::agent
