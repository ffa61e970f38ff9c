// The parts of a trace that are kept while it is read: GPU work, launches, and the host spans that
// explain gaps. 32 bytes per GPU event, 24 per launch or span. Names and threads are numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

inline constexpr uint32_t kNoCorrelation = UINT32_MAX;
inline constexpr uint16_t kNoCollective = UINT16_MAX;
// Limit of every time: far from overflow.
inline constexpr int64_t kMostTime = int64_t{1} << 61;

enum class GpuKind : uint8_t { kKernel, kCopy, kMemset };

struct GpuWork {
  int64_t start = 0;  // ns
  int64_t end = 0;
  uint32_t name = 0;                      // index into Columns::names
  uint32_t correlation = kNoCorrelation;  // the same as its launch's
  uint32_t stream = 0;                    // number of the stream and its device
  uint16_t collective = kNoCollective;    // index into Columns::collectives
  uint8_t device = 0;                     // index into Columns::devices
  GpuKind kind : 4 = GpuKind::kKernel;
  bool communicates : 4 = false;
};

struct Launch {
  int64_t start = 0;
  int32_t duration = 0;  // ns; at most 2 s
  uint32_t correlation = kNoCorrelation;
  uint32_t thread = 0;
  bool kernel = true;  // not a copy or memset
};

struct HostSpan {
  int64_t start = 0;
  int64_t end = 0;
  uint32_t thread = 0;
  uint32_t name = 0;    // index into Columns::names
  uint8_t classes = 0;  // HostClass, at least one
};

struct StepMarked {
  int64_t number = 0;
  int64_t start = 0;
  int64_t end = 0;
};

// Added to a rank: the stage of a rank whose kernels send and receive without recording the peer.
inline constexpr int64_t kStageOfNoOther = int64_t{1} << 24;

// Equal collectives of one group: see analysis/timeline/collectives.h.
struct CollectiveTimes {
  std::string op;      // "all_reduce", "all_gather", "reduce_scatter", "all_to_all"
  uint32_t ranks = 0;  // N, size of the group
  // Its members are first + i * stride; -1 if not recorded or not such a series.
  int64_t first = -1;
  int64_t stride = 0;
  uint64_t bytes = 0;  // B: the whole gathered, scattered or reduced tensor; for an all-to-all the
                       // sum over ranks
  uint64_t calls = 0;  // calls that were measured
  uint64_t time_ns = 0;  // upper bound of the time of the fastest tenth
};

struct Columns {
  std::vector<std::string> names;  // UTF-8
  std::vector<GpuWork> gpu;
  std::vector<Launch> launches;
  std::vector<HostSpan> spans;
  std::vector<StepMarked> steps;
  uint64_t host_events = 0;  // events read, whether or not they were kept
  // The rank's place in its send and receive group; -1 if not known.
  int64_t stage = -1;
  std::vector<CollectiveTimes> collectives;  // what kernels record that they move; without times
  std::vector<std::string> devices;  // as numbered in the trace; may be empty if there is one
  // The trace shows no training: no step mark, gradient or optimizer. Then waiting for a batch, or
  // for the GPU, is waiting for requests, which is not the cause of a gap.
  bool serves = false;
};

// If a process uses several GPUs, there is one timeline for each. The first is that of the main
// GPU: the lowest that is busy for at least half as long as the busiest. If a GPU is busy for less
// than a hundredth of that, it is left out. Each timeline has the launches of its own work, and
// those whose GPU is not known.
struct OfDevice {
  std::string name;  // name of the device; "" for the main one
  Columns columns;
};
struct Devices {
  std::vector<OfDevice> kept;  // at least one entry
  std::vector<std::string> left_out;
};
Devices ByDevice(Columns columns);

// Reduces traces and live spans alike, and sorts the columns. The measured values are defined in
// v1::Timeline, with the formulas in reduce.cc.
v1::Timeline Reduce(Columns* columns);

}  // namespace plumbline::timeline
