// Evidence that could not be kept, counted where it was lost and reported with the next batch.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>

namespace plumbline::agent {

// Causes that arise before evidence enters a batch. Later ones ("queue-full", "record-write",
// "rejected") are counted inside the batches themselves: transport/batch_edit.h.
enum class LossCause : uint8_t {
  kRingFull,      // "ring-full": the drain thread did not keep up
  kInvalid,       // "invalid": shapes, types or values that cannot be measured
  kDevice,        // "device-kernels-not-loaded": a tensor lives on a device that cannot be used
  kHostOnly,      // "device-tensor-not-read": too large to be copied off a device
  kLate,          // "after-step-end": observed while its step was being ended
  kTooManySites,  // "too-many-sites": no room for another series or stage
  kOpenSpans,     // "too-many-open-spans"
  // Device tensors.
  kDeviceStarting,    // "device-starting": another thread was getting the device ready
  kDeviceRing,        // "device-ring-full": the device was too far behind
  kDeviceStreams,     // "device-streams": calls in flight on more streams than there is memory for
  kCapturing,         // "stream-capture": the stream was being captured into a graph
  kDeviceFailed,      // "device-error": CUDA refused, or the device failed
  kDeviceUnfinished,  // "device-unfinished": still under way when the run was closed
  kSampleRing,        // "sample-ring-full": raw rows alone; the summary is kept
  kLoopSpans,         // "too-many-spans": for the loop's times; the spans themselves are kept
  kTooManyCaptured,   // "captured-calls": the device's graphs hold as many calls as there may be
  kDeviceContext,     // "device-context": the stream is of another context of the device (green)
  kLoopMarks,         // "stage-marks": the loop's stages, which nobody had read for long
};
inline constexpr size_t kLossCauses = 18;
const char* LossCauseName(LossCause cause);

// One counter a cause. Add from any thread, Take from one.
class LossCounters {
 public:
  struct Taken {
    uint64_t count = 0;
    int64_t step_first = 0;
    int64_t step_last = 0;
  };

  void Add(LossCause cause, int64_t step);
  // What was added since the last call. Counts are exact; a loss that is added at the same time may
  // lend its step to this report and its count to the next.
  Taken Take(LossCause cause);

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  struct Counter {
    std::atomic<uint64_t> count{0};
    std::atomic<int64_t> first{kNone};
    std::atomic<int64_t> last{-kNone};
    int64_t last_taken = 0;  // the taking thread's
  };
  std::array<Counter, kLossCauses> counters_;
};

}  // namespace plumbline::agent
