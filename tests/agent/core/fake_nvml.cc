// Loaded in place of libnvidia-ml.so.1: two GPUs whose clocks, errors and events a test sets.
#include <atomic>
#include <cstring>

namespace {

struct Gpu {
  unsigned long long reasons = 0, errors = 0, xid = 0;
  bool watched = false;
};
Gpu g_gpus[2];
std::atomic<int> g_inits{0}, g_looks{0};

struct Event {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

constexpr int kInvalid = 2, kTimeout = 10;

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void fake_nvml_set(int gpu, unsigned long long reasons, unsigned long long errors,
                   unsigned long long xid) {
  g_gpus[gpu].reasons = reasons;
  g_gpus[gpu].errors = errors;
  g_gpus[gpu].xid = xid;
}
int fake_nvml_inits() { return g_inits; }
int fake_nvml_looks() { return g_looks; }

int nvmlInit_v2() {
  ++g_inits;
  return 0;
}
int nvmlShutdown() {
  --g_inits;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= 2) return kInvalid;
  *device = &g_gpus[index];
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (std::strcmp(uuid, "GPU-one") != 0) return kInvalid;
  *device = &g_gpus[1];
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = static_cast<Gpu*>(device)->reasons;
  ++g_looks;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, unsigned type, unsigned counter,
                                unsigned long long* errors) {
  if (type != 1 || counter != 0) return kInvalid;
  *errors = static_cast<Gpu*>(device)->errors;
  return 0;
}
int nvmlEventSetCreate(void** set) {
  *set = &g_gpus;
  return 0;
}
int nvmlEventSetFree(void* /*set*/) { return 0; }
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* /*set*/) {
  static_cast<Gpu*>(device)->watched = types == 8;
  return 0;
}
int nvmlEventSetWait_v2(void* /*set*/, Event* event, unsigned /*ms*/) {
  for (Gpu& gpu : g_gpus) {
    if (!gpu.watched || gpu.xid == 0) continue;
    *event = {&gpu, 8, gpu.xid, 0, 0};
    gpu.xid = 0;
    return 0;
  }
  return kTimeout;
}

}  // extern "C"
#pragma GCC visibility pop
