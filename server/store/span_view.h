// Reads from the catalogue for queries and lists. The caller must hold the lock of the catalogue's
// owner.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "plumbline/v1/query.pb.h"
#include "server/store/catalogue.h"
#include "server/store/series_query.h"

namespace plumbline::server {

// Returns the spans of a run and its series that match the glob (empty: all). Returns NotFound if
// there is no such run.
absl::Status ViewRun(const Catalogue& catalogue, const std::string& run, const std::string& glob,
                     RunView* view);

// Adds the run's attempts, oldest first, and its samples.
void AddAttempts(const Catalogue& catalogue, v1::RunInfo* info);

}  // namespace plumbline::server
