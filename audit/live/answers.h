// Formats a server's answers as JSON, for plumb runs, plumb query and plumb mcp.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "plumbline/v1/query.pb.h"

namespace plumbline::audit {

// Each returns one object on one line that ends with a newline. Incidents: see watch_printer.h.
std::string RunJson(const v1::RunInfo& run);
std::string SeriesInfoJson(const v1::SeriesInfo& series);
// Returns DataLoss if the lists of the answer have different lengths.
absl::StatusOr<std::string> SeriesJson(const v1::SeriesColumns& columns);

}  // namespace plumbline::audit
