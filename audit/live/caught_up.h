// A server that was started again listens at once and judges its journal meanwhile, so for a moment
// it knows less than before: no answer to be taken for "nothing found".
#pragma once

#include <string>

#include "absl/status/status.h"
#include "audit/live/client.h"

namespace plumbline::audit {

// Waits until the server has judged its journal; says on standard error when the time is over and
// it has not. An error: the server could not be asked.
absl::Status AwaitCaughtUp(Client& client, const std::string& server, double timeout_seconds);

}  // namespace plumbline::audit
