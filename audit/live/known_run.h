// A run that was asked for by name: nothing found of it is an answer only where the server knows
// it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "audit/live/client.h"

namespace plumbline::audit {

// NotFound: `run` is not among `runs`; names the newest few that are.
absl::Status CheckRunKnown(const std::string& run, const std::string& server,
                           const v1::ListRunsResponse& runs);

// The same of the runs that the server lists now; OK without a run. Or why it does not say.
absl::Status AskIfRunKnown(Client& client, const std::string& run, const std::string& server,
                           double timeout_seconds);

}  // namespace plumbline::audit
