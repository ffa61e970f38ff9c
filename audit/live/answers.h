// What a server answers, as JSON: what plumb runs and plumb query print, and plumb mcp hands on.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "plumbline/v1/query.pb.h"

namespace plumbline::audit {

// One object on one line, ended by a newline. Of incidents: watch_printer.h.
std::string RunJson(const v1::RunInfo& run);
std::string SeriesInfoJson(const v1::SeriesInfo& series);
// DataLoss: its lists do not fit each other.
absl::StatusOr<std::string> SeriesJson(const v1::SeriesColumns& columns);

}  // namespace plumbline::audit
