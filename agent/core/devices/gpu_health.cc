#include "agent/core/devices/gpu_health.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "agent/core/devices/library.h"

namespace plumbline::agent {
namespace {

constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";
constexpr std::chrono::seconds kBetweenLooks(1);
constexpr int kMostEvents = 16;  // of one look

// Values of nvml.h of NVIDIA's driver.
constexpr int kSuccess = 0;
constexpr unsigned kUncorrected = 1, kVolatile = 0;
constexpr unsigned long long kXidEvent = 0x8;
struct NvmlEvent {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Parses a decimal number >= 0. Returns -1 if `text` is not one.
int NumberOf(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? value : -1;
}

// Returns the GPU that CUDA_VISIBLE_DEVICES names for this process: a number or a UUID; "0" if it
// is not set.
std::string ChosenGpu() {
  const std::string visible = Environment("CUDA_VISIBLE_DEVICES");
  const int local = std::max(0, NumberOf(Environment("LOCAL_RANK")));
  if (visible.empty()) return std::to_string(local);
  // If there are several, takes the LOCAL_RANK-th, otherwise the only one.
  std::string_view rest = visible;
  for (int i = 0; i < local && rest.find(',') != rest.npos; ++i)
    rest.remove_prefix(rest.find(',') + 1);
  if (visible.find(',') == visible.npos) rest = visible;
  return std::string(rest.substr(0, rest.find(',')));
}

}  // namespace

// ---- one GPU, through the driver's library --------------------------------------------------

struct Nvml::Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_index)(unsigned, void**) = nullptr;
  int (*by_uuid)(const char*, void**) = nullptr;
  int (*reasons)(void*, unsigned long long*) = nullptr;
  int (*errors)(void*, unsigned, unsigned, unsigned long long*) = nullptr;
  int (*event_set)(void**) = nullptr;
  int (*free_set)(void*) = nullptr;
  int (*register_events)(void*, unsigned long long, void*) = nullptr;
  int (*wait)(void*, NvmlEvent*, unsigned) = nullptr;

  template <typename Function>
  static bool Find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
  }
  // Finds the functions; those for events, ECC and the newer name of the reasons may be missing.
  bool FindAll(void* library) {
    if (!Find(library, "nvmlDeviceGetCurrentClocksEventReasons", &reasons))
      Find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &reasons);
    Find(library, "nvmlDeviceGetTotalEccErrors", &errors);
    Find(library, "nvmlEventSetFree", &free_set);
    Find(library, "nvmlDeviceRegisterEvents", &register_events);
    Find(library, "nvmlEventSetWait_v2", &wait);
    Find(library, "nvmlEventSetCreate", &event_set);
    return Find(library, "nvmlInit_v2", &init) && Find(library, "nvmlShutdown", &shutdown) &&
           Find(library, "nvmlDeviceGetHandleByIndex_v2", &by_index) &&
           Find(library, "nvmlDeviceGetHandleByUUID", &by_uuid) && reasons != nullptr;
  }
  bool has_events() const {
    return event_set != nullptr && free_set != nullptr && register_events != nullptr &&
           wait != nullptr;
  }
};

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

std::unique_ptr<Nvml> Nvml::Open(const std::string& library, std::string* why) {
  void* handle = OpenOfHost(library, why);
  if (handle == nullptr) return nullptr;
  auto functions = std::make_unique<Functions>();
  if (!functions->FindAll(handle)) {
    *why = library + " lacks functions of NVML";
    return nullptr;
  }
  if (const int error = functions->init(); error != kSuccess) {
    *why = "nvmlInit_v2 returned " + std::to_string(error);
    return nullptr;
  }
  std::unique_ptr<Nvml> nvml(new Nvml(std::move(functions)));
  return nvml->Choose(why) ? std::move(nvml) : nullptr;
}

// Chooses the GPU of this process, and its events if the driver has them.
bool Nvml::Choose(std::string* why) {
  const std::string chosen = ChosenGpu();
  const int number = NumberOf(chosen);
  const int error = number >= 0 ? functions_->by_index(static_cast<unsigned>(number), &device_)
                                : functions_->by_uuid(chosen.c_str(), &device_);
  if (error != kSuccess) {
    *why = "NVML does not find GPU \"" + chosen + "\": it returned " + std::to_string(error);
    return false;
  }
  if (!functions_->has_events() || functions_->event_set(&events_) != kSuccess) {
    events_ = nullptr;
    return true;
  }
  if (functions_->register_events(device_, kXidEvent, events_) == kSuccess) return true;
  functions_->free_set(events_);
  events_ = nullptr;
  return true;
}

Nvml::~Nvml() {
  if (events_ != nullptr) functions_->free_set(events_);
  functions_->shutdown();
}

void Nvml::Look(GpuSeen* seen) {
  unsigned long long value = 0;
  if (functions_->reasons(device_, &value) == kSuccess) {
    ++seen->looks;
    seen->held += (value & kClocksHeld) != 0 ? 1 : 0;
    seen->reasons |= value & kClocksHeld;
  }
  // Errors are counted from the first observation on, because earlier errors belong to another job.
  if (functions_->errors != nullptr &&
      functions_->errors(device_, kUncorrected, kVolatile, &value) == kSuccess) {
    if (!errors_before_) errors_before_ = value;
    seen->uncorrected = value - std::min<uint64_t>(value, *errors_before_);
  }
  // Reads events since the last look; if there are several XIDs, keeps the last one.
  NvmlEvent event{};
  for (int i = 0; events_ != nullptr && i < kMostEvents; ++i) {
    if (functions_->wait(events_, &event, 0) != kSuccess) break;
    if (event.type == kXidEvent) seen->xid = event.data;
  }
}

// ---- the thread that looks -------------------------------------------------------------------

// State that the thread and the run share; the last owner frees it.
struct GpuHealth::Shared {
  Mutex mutex;
  CondVar changed;
  bool stop PLUMB_GUARDED_BY(mutex) = false;
  GpuSeen seen PLUMB_GUARDED_BY(mutex);

  void Run() {
    std::string why;
    const std::string named = Environment("PLUMBLINE_NVML_LIBRARY");
    const std::unique_ptr<Nvml> nvml = Nvml::Open(named.empty() ? kNvmlLibrary : named, &why);
    if (nvml == nullptr) return;
    while (true) {
      GpuSeen now;
      nvml->Look(&now);  // without the lock: a lost GPU may block in the driver
      MutexLock lock(mutex);
      if (stop) return;
      seen.looks += now.looks;
      seen.held += now.held;
      seen.reasons |= now.reasons;
      seen.uncorrected = now.uncorrected;
      if (now.xid != 0) seen.xid = now.xid;
      const auto deadline = DetachedThread::Clock::now() + kBetweenLooks;
      changed.WaitUntil(lock, deadline, [&]() PLUMB_REQUIRES(mutex) { return stop; });
      if (stop) return;
    }
  }
};

GpuHealth::~GpuHealth() {
  if (shared_ == nullptr) return;
  const MutexLock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.NotifyAll();
}

void GpuHealth::Start() {
  if (shared_ != nullptr) return;
  shared_ = std::make_shared<Shared>();
  const SignalsBlocked blocked;
  thread_.Start("plumb-gpu", [shared = shared_] { shared->Run(); });
}

std::optional<GpuSeen> GpuHealth::Take() {
  if (shared_ == nullptr) return std::nullopt;
  const MutexLock lock(shared_->mutex);
  if (shared_->seen.looks == 0) return std::nullopt;
  // Memory errors are totals of the whole run; the other figures are of one block.
  GpuSeen taken = shared_->seen;
  shared_->seen = GpuSeen();
  shared_->seen.uncorrected = taken.uncorrected;
  return taken;
}

}  // namespace plumbline::agent
