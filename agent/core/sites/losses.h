// Evidence that could not be kept, counted at the place of its loss and reported with the next
// batch.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>

namespace plumbline::agent {

// Causes of losses before evidence enters a batch. Later ones ("queue-full", "record-write",
// "rejected") are counted inside the batches: transport/batch_edit.h.
enum class LossCause : uint8_t {
  kRingFull,      // "ring-full": the drain thread did not keep up
  kInvalid,       // "invalid": shapes, types or values that cannot be measured
  kDevice,        // "device-kernels-not-loaded": a tensor is on a device that cannot be used
  kHostOnly,      // "device-tensor-not-read": too large to be copied off a device
  kLate,          // "after-step-end": observed during the end of its step
  kTooManySites,  // "too-many-sites": no space for another series or stage
  kOpenSpans,     // "too-many-open-spans"
  // Causes of device tensors.
  kDeviceStarting,    // "device-starting": another thread was preparing the device
  kDeviceRing,        // "device-ring-full": the device did not keep up
  kDeviceStreams,     // "device-streams": calls in flight on more streams than there is memory for
  kCapturing,         // "stream-capture": the stream was being captured into a graph
  kDeviceFailed,      // "device-error": CUDA refused, or the device failed
  kDeviceUnfinished,  // "device-unfinished": still in progress when the run was closed
  kSampleRing,        // "sample-ring-full": only raw rows; the summary is kept
  kLoopSpans,         // "too-many-spans": for the loop's times; the spans are kept
  kTooManyCaptured,   // "captured-calls": the device's graphs already hold the largest number of
                      // calls
  kDeviceContext,     // "device-context": the stream is of another context of the device (green)
  kLoopMarks,         // "stage-marks": marks of the loop's stages that were not read in time
};
inline constexpr size_t kLossCauses = 18;
const char* LossCauseName(LossCause cause);

// One counter per cause. Add is thread-safe; Take is called by one thread.
class LossCounters {
 public:
  struct Taken {
    uint64_t count = 0;
    int64_t step_first = 0;
    int64_t step_last = 0;
  };

  void Add(LossCause cause, int64_t step);
  // Returns the counts since the last call. Counts are exact; a loss that is added at the same time
  // may give its step to this report and its count to the next one.
  Taken Take(LossCause cause);

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  struct Counter {
    std::atomic<uint64_t> count{0};
    std::atomic<int64_t> first{kNone};
    std::atomic<int64_t> last{-kNone};
    int64_t last_taken = 0;  // of the taking thread
  };
  std::array<Counter, kLossCauses> counters_;
};

}  // namespace plumbline::agent
