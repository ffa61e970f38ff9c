// QuerySeries and ListSeries over sealed tiles and steps in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plumbline/v1/query.pb.h"
#include "server/store/catalogue.h"
#include "server/store/closed_steps.h"
#include "server/store/tile_reader.h"

namespace plumbline::server {

// A span at one moment, taken before the database is read, so that a block that is sealed meanwhile
// is not missed. If a step is in both, it counts once.
struct SpanView {
  uint32_t id = 0, attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t first_step = 0, last_step = -1;
  bool rebuilt = false;
  bool late = false;                 // it adds to others of its attempt and supersedes none
  bool resumed = false;              // it adds to others of its attempt, but supersedes earlier
                                     // attempts
  std::vector<ClosedStepPtr> steps;  // in memory, ascending; the database has the earlier ones
};

struct RunView {
  std::vector<SeriesName> series;  // that match the request's glob
  std::vector<SpanView> spans;     // ascending: if two spans have a step, the later one counts
};

// Returns "LAYER/OP", or "OP" if there is no layer.
std::string SeriesText(const std::string& layer, const std::string& op);

// Answers the request. InvalidArgument states what to request instead. Numbers of tiles that could
// not be decoded go to *damaged; their values are absent.
absl::Status QuerySeries(const v1::QuerySeriesRequest& request, const RunView& view,
                         TileReader* reader, v1::QuerySeriesResponse* response,
                         std::vector<int64_t>* damaged);

absl::Status ListSeries(const RunView& view, TileReader* reader, v1::ListSeriesResponse* response);

}  // namespace plumbline::server
