// The text of a trace, in the profiler's format.
#pragma once

#include <string>

#include "analysis/timeline/timeline.h"

namespace plumbline::audit::testing {

struct TraceStyle {
  int rank = -1;  // -1: the file does not state it
  int world = 0;
  bool bare = false;       // a list of events without a frame
  bool spaced = true;      // on several lines, as Kineto writes
  bool noise = true;       // operators, arrows and metadata between the events
  bool late_rank = false;  // the process is described after the events
};

std::string TraceText(const timeline::Columns& columns, const TraceStyle& style);

std::string Gzip(const std::string& bytes);

}  // namespace plumbline::audit::testing
