// Reads a GPU's health from its driver while the trainer runs: reduced clocks, memory errors, XID
// events. Uses NVML (libnvidia-ml.so.1), which is opened when it is first needed. Does nothing if
// the process has no NVML or no GPU.
//
// The GPU is the first one in CUDA_VISIBLE_DEVICES (a number or a UUID). If the variable names
// several or none, the GPU is the one of LOCAL_RANK. NVML counts in the order of the bus. CUDA does
// so with CUDA_DEVICE_ORDER=PCI_BUS_ID, or if all GPUs of a host are equal.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "agent/core/shared/threads.h"
#include "base/mutex.h"

namespace plumbline::agent {

// NVML's bits for clocks that are reduced by a fault: HW slowdown, SW and HW thermal slowdown, HW
// power brake. A GPU at its power cap or an idle GPU is healthy.
inline constexpr uint64_t kClocksHeld = 0x8 | 0x20 | 0x40 | 0x80;

// Observations since the last call of Take.
struct GpuSeen {
  uint64_t looks = 0;
  uint64_t held = 0;         // looks with reduced clocks
  uint64_t reasons = 0;      // bits of kClocksHeld that were seen
  uint64_t uncorrected = 0;  // memory errors since the first look
  uint64_t xid = 0;          // the last event; 0: none
};

// The functions of NVML on one GPU. Not thread-safe.
class Nvml {
 public:
  // Opens NVML. `library` is a name or path. If something is missing, returns nullptr and sets *why
  // to a text about it.
  static std::unique_ptr<Nvml> Open(const std::string& library, std::string* why);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Adds one look to *seen. A value that the driver refuses (a consumer card has no ECC) stays 0.
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

// Observes the GPU once a second, on a separate thread: a lost GPU may block its driver for long,
// and must not block the run. Thread-safe.
class GpuHealth {
 public:
  GpuHealth() = default;
  ~GpuHealth();

  // Starts the thread, once. Opens PLUMBLINE_NVML_LIBRARY, else libnvidia-ml.so.1.
  void Start();
  // Returns the observations since the last call, or nullopt if there are none or the driver cannot
  // be read.
  std::optional<GpuSeen> Take();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  DetachedThread thread_;
};

}  // namespace plumbline::agent
