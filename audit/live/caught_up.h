// A server that was started again listens at once and judges its journal meanwhile, so for a moment
// it knows less than before: no answer to be taken for "nothing found".
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "audit/live/client.h"

namespace plumbline::audit {

// Waits until the server has judged its journal. False: the time is over, or `stopped` says so
// first, which only the former is said of on standard error. An error: it could not be asked.
absl::StatusOr<bool> AwaitCaughtUp(Client& client, const std::string& server,
                                   double timeout_seconds,
                                   const std::function<bool()>& stopped = nullptr);

// Prints what a server answered; the exit status. kLiveFailed also where it had not caught up: less
// than all is no answer to rely on.
int LiveAnswer(const std::string& text, bool caught_up);

}  // namespace plumbline::audit
