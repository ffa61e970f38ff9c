// What is kept of a trace while it is read: GPU work, launches and the host spans that explain
// gaps; nothing else. 32 bytes a GPU event, 24 a launch or span. Names and threads are numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

inline constexpr uint32_t kNoCorrelation = UINT32_MAX;
inline constexpr uint16_t kNoCollective = UINT16_MAX;
// Of every time: far from overflow.
inline constexpr int64_t kMostTime = int64_t{1} << 61;

enum class GpuKind : uint8_t { kKernel, kCopy, kMemset };

struct GpuWork {
  int64_t start = 0;  // ns
  int64_t end = 0;
  uint32_t name = 0;                      // index into Columns::names
  uint32_t correlation = kNoCorrelation;  // with its launch
  uint32_t stream = 0;                    // of its device: a number for both
  uint16_t collective = kNoCollective;    // index into Columns::collectives
  uint8_t device = 0;                     // index into Columns::devices
  GpuKind kind : 4 = GpuKind::kKernel;
  bool communicates : 4 = false;
};

struct Launch {
  int64_t start = 0;
  int32_t duration = 0;  // ns; at most 2 s are kept
  uint32_t correlation = kNoCorrelation;
  uint32_t thread = 0;
  bool kernel = true;  // not of a copy or memset
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

// Added to a rank: the stage of one whose kernels send and receive without saying with whom.
inline constexpr int64_t kStageOfNobodyElse = int64_t{1} << 24;

// Equal collectives of one group: analysis/timeline/collectives.h.
struct CollectiveTimes {
  std::string op;      // "all_reduce", "all_gather", "reduce_scatter", "all_to_all"
  uint32_t ranks = 0;  // N, of the group
  int64_t first = -1;  // its members are first + i * stride; -1: not said, or no such row
  int64_t stride = 0;
  uint64_t bytes = 0;    // B: the whole gathered, scattered or reduced tensor; of an all-to-all the
                         // sum over ranks
  uint64_t calls = 0;    // that were looked at
  uint64_t time_ns = 0;  // the tenth of them that is done soonest takes at most so long
};

struct Columns {
  std::vector<std::string> names;  // UTF-8
  std::vector<GpuWork> gpu;
  std::vector<Launch> launches;
  std::vector<HostSpan> spans;
  std::vector<StepMarked> steps;
  uint64_t host_events = 0;  // read, kept or not
  // Where the rank stands in its send and receive group: -1: not known.
  int64_t stage = -1;
  std::vector<CollectiveTimes> collectives;  // what kernels say that they move; without times
  std::vector<std::string> devices;  // as the trace numbers them; may be empty where there is one
  // Nothing in it says that it trains: no step is marked, no gradient, no optimizer. Then who waits
  // for a batch, or for the GPU, waits for requests: that is no cause of a gap.
  bool serves = false;
};

// A process that works on several GPUs is as many timelines, the first that of its main GPU: the
// lowest that is busy for at least half as long as the busiest. A GPU that is busy for less than a
// hundredth of that is left out. Of launches each has those of its own work, and those of which
// nobody knows whose they are.
struct OfDevice {
  std::string name;  // of the device; "" for the main one
  Columns columns;
};
struct Devices {
  std::vector<OfDevice> kept;  // at least one
  std::vector<std::string> left_out;
};
Devices ByDevice(Columns columns);

// The one reduction, of traces and of live spans alike; the columns are sorted by it. What is
// measured is what v1::Timeline says, by the formulas of reduce.cc.
v1::Timeline Reduce(Columns* columns);

}  // namespace plumbline::timeline
