// Checks that a server knows the requested run: only then is an empty list an answer.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "audit/live/client.h"

namespace plumbline::audit {

// If `run` is not among `runs`, returns NotFound with the newest few that are.
absl::Status CheckRunKnown(const std::string& run, const std::string& server,
                           const v1::ListRunsResponse& runs);

// Checks against the runs that the server lists now. If `run` is empty, returns OK. If the server
// does not answer, returns its error.
absl::Status QueryIfRunKnown(Client& client, const std::string& run, const std::string& server,
                             double timeout_seconds);

}  // namespace plumbline::audit
