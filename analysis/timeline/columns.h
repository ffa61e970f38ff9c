// What is kept of a trace while it is read: GPU work, launches and the host spans that explain
// gaps; nothing else. 32 bytes a GPU event, 24 a launch or span. Names and threads are numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

inline constexpr uint32_t kNoCorrelation = UINT32_MAX;
// Of every time: far from overflow.
inline constexpr int64_t kMostTime = int64_t{1} << 61;

enum class GpuKind : uint8_t { kKernel, kCopy, kMemset };

struct GpuWork {
  int64_t start = 0;  // ns
  int64_t end = 0;
  uint32_t name = 0;                      // index into Columns::names
  uint32_t correlation = kNoCorrelation;  // with its launch
  uint32_t stream = 0;                    // of its device: a number for both
  GpuKind kind = GpuKind::kKernel;
  bool communicates = false;
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

struct Columns {
  std::vector<std::string> names;  // UTF-8
  std::vector<GpuWork> gpu;
  std::vector<Launch> launches;
  std::vector<HostSpan> spans;
  std::vector<StepMarked> steps;
  uint64_t host_events = 0;  // read, kept or not
  // Where the rank stands in its send and receive group: -1: not known.
  int64_t stage = -1;
};

// The one reduction, of traces and of live spans alike; the columns are sorted by it. What is
// measured is what v1::Timeline says, by the formulas of reduce.cc.
v1::Timeline Reduce(Columns* columns);

}  // namespace plumbline::timeline
