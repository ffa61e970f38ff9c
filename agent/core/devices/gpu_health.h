// What a GPU's driver says of its health while the trainer runs: clocks that are held down, memory
// errors, XID events. By NVML (libnvidia-ml.so.1, opened when it is first needed; a process without
// it, or without a GPU, is asked nothing).
//
// Which GPU: the first that CUDA_VISIBLE_DEVICES names (a number or a UUID); where it names several
// or none, that of LOCAL_RANK. NVML counts in the order of the bus, as CUDA does with
// CUDA_DEVICE_ORDER=PCI_BUS_ID, and without it where all GPUs of a host are alike.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "agent/core/shared/threads.h"
#include "base/mutex.h"

namespace plumbline::agent {

// NVML's bits for clocks that something holds down which should not: HW slowdown, SW and HW thermal
// slowdown, HW power brake. A GPU at its power cap is in order, and one that idles, too.
inline constexpr uint64_t kClocksHeld = 0x8 | 0x20 | 0x40 | 0x80;

// Since the last time that it was asked for.
struct GpuSeen {
  uint64_t looks = 0;
  uint64_t held = 0;         // looks at which clocks were held
  uint64_t reasons = 0;      // of kClocksHeld, all that were seen
  uint64_t uncorrected = 0;  // memory errors since the process began to look
  uint64_t xid = 0;          // the last event; 0: none
};

// The functions of NVML on one GPU. Not thread-safe.
class Nvml {
 public:
  // `library`: a name or path. nullptr, and *why: what is missing.
  static std::unique_ptr<Nvml> Open(const std::string& library, std::string* why);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Adds one look. What the driver refuses (a consumer card has no ECC) stays 0.
  void Look(GpuSeen* seen);

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  bool Choose(std::string* why);

  std::unique_ptr<Functions> functions_;
  void* device_ = nullptr;
  void* events_ = nullptr;
  std::optional<uint64_t> errors_before_;
};

// Looks once a second, on a thread of its own: a GPU that fell off its bus may hold its driver for
// long, and must not hold the run. Thread-safe.
class GpuHealth {
 public:
  GpuHealth() = default;
  ~GpuHealth();

  // Starts to look, once. PLUMBLINE_NVML_LIBRARY, else libnvidia-ml.so.1.
  void Start();
  // nullopt: nothing was seen since, or the driver cannot be asked.
  std::optional<GpuSeen> Take();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  DetachedThread thread_;
};

}  // namespace plumbline::agent
