// A C trainer with CUDA tensors: `device_trainer MODE RECORD`. It links only the façade.
//   unavailable   no device can be used: every call reports it, and nothing else is disturbed
//   exit          ends while the device is still working, without closing its run
//   fork          forks children that exit while calls are in flight
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

// First: its names must not shadow the API's.
// clang-format off
#include "tests/kernels/device/fake_device.h"
#include "tests/agent/facade/scenario_kit.h"
// clang-format on

namespace {

using plumbline::FakeDeviceControl;

const FakeDeviceControl& Fake() {
  void* library = dlopen(getenv("PLUMBLINE_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  return *static_cast<const FakeDeviceControl*>(dlsym(library, plumbline::kFakeDeviceSymbol));
}

struct DeviceCall : scenario::Call {
  DeviceCall() {
    scores.device.device_type = static_cast<decltype(scores.device.device_type)>(PLUMBLINE_DL_CUDA);
  }
};

void Unavailable(plumbline_run_t* run, plumbline_site_t* site) {
  for (int64_t step = 0; step < 3; ++step) {
    REQUIRE(plumbline_step_begin(run, step) == PLUMBLINE_OK);
    DeviceCall call;
    REQUIRE(plumbline_observe_routing(site, &call.routing) == PLUMBLINE_UNAVAILABLE);
    if (step == 0) printf("%s\n", plumbline_last_error());
    scenario::Call host;
    REQUIRE(plumbline_observe_routing(site, &host.routing) == PLUMBLINE_OK);
    REQUIRE(plumbline_scalar(run, "loss", 1) == PLUMBLINE_OK);
    REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  }
  REQUIRE(plumbline_close(run, 30000) == PLUMBLINE_OK);
}

// The device continues when the exit handler has waited for it for a while.
void Exit(plumbline_run_t* run, plumbline_site_t* site) {
  Fake().hold(true);
  static DeviceCall call;
  for (int64_t step = 0; step < 3; ++step) {
    REQUIRE(plumbline_step_begin(run, step) == PLUMBLINE_OK);
    REQUIRE(plumbline_observe_routing(site, &call.routing) == PLUMBLINE_OK);
    REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  }
  Fake().release_after(20);
}

void Fork(plumbline_run_t* run, plumbline_site_t* site) {
  Fake().hold(true);
  DeviceCall call;
  for (int64_t step = 0; step < 6; ++step) {
    REQUIRE(plumbline_step_begin(run, step) == PLUMBLINE_OK);
    REQUIRE(plumbline_observe_routing(site, &call.routing) == PLUMBLINE_OK);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      if (plumbline_observe_routing(site, &call.routing) != PLUMBLINE_DISABLED) _exit(2);
      if (step % 2 == 0) _exit(0);
      exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    Fake().advance(100);
    REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  }
  Fake().hold(false);
  REQUIRE(plumbline_close(run, 30000) == PLUMBLINE_OK);
  REQUIRE(Fake().faults() == 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  setenv("SCENARIO_RECORD", argv[2], 1);
  plumbline_run_t* run = scenario::Open(1);
  plumbline_site_t* site = scenario::Site(run, "layers.3");
  const std::string mode = argv[1];
  if (mode == "unavailable") Unavailable(run, site);
  if (mode == "exit") Exit(run, site);
  if (mode == "fork") Fork(run, site);
  return 0;
}
