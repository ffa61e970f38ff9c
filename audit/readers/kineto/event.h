// Reads one event of a trace in Chrome's format. Reads only the fields that rules need.
#pragma once

#include <cstdint>
#include <string_view>

#include "audit/readers/kineto/json_scan.h"

namespace plumbline::audit {

// Class of an event, from its category.
enum class TraceCategory : uint8_t {
  kNone,    // the category is not known yet
  kKernel,  // GPU work ...
  kCopy,
  kMemset,
  kRuntime,  // calls of the driver or runtime: launches, waits
  kHost,     // operators, annotations, Python functions
  kIgnored,  // arrows, GPU annotations, the profiler's own overhead
};

TraceCategory CategoryOf(std::string_view category);

// An event. Views point into the window; escapes are not decoded.
struct TraceEvent {
  char phase = 0;  // 'X' is a complete event, with a start and a duration
  TraceCategory category = TraceCategory::kNone;
  bool has_start = false, has_duration = false;
  int64_t start_ns = 0, duration_ns = 0;
  std::string_view name, process, thread;
  // From `args`; read only if rules need it for this category.
  int64_t correlation = -1;
  std::string_view device, stream;
  std::string_view collective;                  // "Collective name", of a kernel that communicates
  std::string_view dtype;                       // dtype of the moved data
  int64_t elements_in = -1, elements_out = -1;  // elements of this rank
  int64_t group_size = -1;
  std::string_view group;        // "Process Group Name"
  std::string_view group_ranks;  // "Process Group Ranks": "[0, 4, 8]", a list or a text
};

// Reads the event that begins at the next '{'. Returns false on failure; `scan` has the reason.
bool ReadEvent(JsonScan* scan, TraceEvent* event);

}  // namespace plumbline::audit
