#include "kernels/device/driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <mutex>

namespace plumbline {
namespace {

// Its name in the library is that of 12.0 and does not change. Older drivers have another name.
using ProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t,
                                 CUdriverProcAddressQueryResult*);

struct Opened {
  std::once_flag once;
  bool complete = false;
  Driver driver{};
  DeviceError why{};
};

Opened& TheDriver() {
  static auto* opened = new Opened;  // used at the end of the process
  return *opened;
}

template <typename F>
bool Find(ProcAddress find, const char* name, int version, F* slot) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult how{};
  if (find(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &how) != CUDA_SUCCESS) return false;
  *slot = reinterpret_cast<F>(found);
  return found != nullptr;
}

void TooOld(int version, DeviceError* error) {
  std::snprintf(error->text, sizeof(error->text),
                "the CUDA driver is too old: it supports CUDA %d.%d, and 12.0 or newer is needed "
                "(driver 525.60 or newer)",
                version / 1000, version % 1000 / 10);
}

bool Open(Driver* d, DeviceError* error) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    std::snprintf(error->text, sizeof(error->text), "no CUDA driver: %s", dlerror());
    return false;
  }
  const auto version = reinterpret_cast<CUresult (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  const auto find = reinterpret_cast<ProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (version != nullptr) version(&d->version);
  if (find == nullptr || d->version < kNeededDriver) {
    TooOld(d->version, error);
    return false;
  }
  const char* missing = nullptr;
#define PLUMB_DRIVER_FIND(field, name) \
  if (!Find(find, #name, kNeededDriver, &d->field)) missing = #name;
  PLUMB_DRIVER_FUNCTIONS(PLUMB_DRIVER_FIND)
#undef PLUMB_DRIVER_FIND
  if (!Find(find, "cuStreamGetCaptureInfo", kNeededDriver, &d->capture_info))
    missing = "cuStreamGetCaptureInfo";
  Find(find, "cuFuncLoad", 12040, &d->function_load);
  if (missing == nullptr) return true;
  std::snprintf(error->text, sizeof(error->text), "the CUDA driver, for CUDA %d.%d, has no %s",
                d->version / 1000, d->version % 1000 / 10, missing);
  return false;
}

}  // namespace

const Driver* OpenDriver(DeviceError* error) {
  Opened& o = TheDriver();
  std::call_once(o.once, [&] { o.complete = Open(&o.driver, &o.why); });
  if (o.complete) return &o.driver;
  *error = o.why;
  return nullptr;
}

const Driver& OpenedDriver() { return TheDriver().driver; }

}  // namespace plumbline
