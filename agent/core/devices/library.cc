#include "agent/core/devices/library.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "agent/core/shared/threads.h"
#include "base/mutex.h"

namespace plumbline::agent {
namespace {

constexpr char kLibrary[] = "libplumbline_cuda.so";

// Held while the library is opened, and during forks: a child must not inherit a loader in the
// middle of another thread's call.
constinit Mutex g_loading;
pthread_once_t g_watching = PTHREAD_ONCE_INIT;

bool g_tried PLUMB_GUARDED_BY(g_loading) = false;  // the next two are set
const DeviceTable* g_table PLUMB_GUARDED_BY(g_loading) = nullptr;
DeviceError g_error PLUMB_GUARDED_BY(g_loading);

void WatchForks() {
  pthread_atfork([]() PLUMB_ACQUIRE(g_loading) { g_loading.Lock(); },
                 []() PLUMB_RELEASE(g_loading) { g_loading.Unlock(); },
                 []() PLUMB_RELEASE(g_loading) { g_loading.Unlock(); });
}

void Reason(const std::string& text) PLUMB_REQUIRES(g_loading) {
  std::snprintf(g_error.text, sizeof(g_error.text), "%s", text.c_str());
}

// Returns the library's folder as the loader knows it, or the target of a symbolic link to it.
std::string Adjacent(bool resolved) {
  Dl_info self;
  if (dladdr(&g_loading, &self) == 0 || self.dli_fname == nullptr) return kLibrary;
  std::string path = self.dli_fname;
  if (resolved) {
    if (char* real = realpath(path.c_str(), nullptr)) {
      path = real;
      std::free(real);
    }
  }
  const size_t slash = path.rfind('/');
  return (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + kLibrary;
}

// Does not use deep binding: the library needs only libc, and must use the process's libc.
void* Open(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

void* OpenLibrary() PLUMB_REQUIRES(g_loading) {
  const char* chosen = secure_getenv("PLUMBLINE_CUDA_LIBRARY");
  const bool named = chosen != nullptr && *chosen != '\0';
  const std::string path = named ? chosen : Adjacent(false);
  if (void* handle = Open(path)) return handle;
  const char* why = dlerror();
  Reason(std::string(named ? "PLUMBLINE_CUDA_LIBRARY cannot be loaded: "
                           : "the device kernels cannot be loaded: ") +
         (why != nullptr ? why : path));
  const std::string real = named ? path : Adjacent(true);
  return real != path ? Open(real) : nullptr;
}

bool Acceptable(const DeviceTable* t) PLUMB_REQUIRES(g_loading) {
  if (t->size == sizeof(DeviceTable) && t->version == kDeviceTableVersion &&
      t->sizes == kDeviceSizes) {
    return true;
  }
  Reason("the device library has table version " + std::to_string(t->version) + "; expected " +
         std::to_string(kDeviceTableVersion) + ", of the same build as libplumbline_agent.so");
  return false;
}

const DeviceTable* Load() PLUMB_REQUIRES(g_loading) {
  const SignalsBlocked blocked;  // a thread that the driver starts inherits the signal mask
  void* handle = OpenLibrary();
  if (handle == nullptr) return nullptr;
  const auto* table = static_cast<const DeviceTable*>(dlsym(handle, kDeviceTableSymbol));
  if (table == nullptr) {
    Reason(std::string("the device library has no ") + kDeviceTableSymbol);
    return nullptr;
  }
  return Acceptable(table) ? table : nullptr;
}

}  // namespace

const DeviceTable* LoadDeviceLibrary(DeviceError* error) {
  pthread_once(&g_watching, WatchForks);
  const MutexLock lock(g_loading);
  if (!g_tried) {
    g_tried = true;
    g_table = Load();
  }
  if (g_table == nullptr) *error = g_error;
  return g_table;
}

void* OpenOfHost(const std::string& name, std::string* why) {
  pthread_once(&g_watching, WatchForks);
  const MutexLock lock(g_loading);
  const SignalsBlocked blocked;
  void* handle = Open(name);
  if (handle == nullptr) {
    const char* stated = dlerror();
    *why = stated != nullptr ? stated : name;
  }
  return handle;
}

}  // namespace plumbline::agent
