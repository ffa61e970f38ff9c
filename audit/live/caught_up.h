// After a restart, a server listens before it has judged its journal. Until then it knows less than
// before, so "nothing found" is not a valid answer.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "audit/live/client.h"

namespace plumbline::audit {

// Waits until the server has judged its journal. Returns false if the time is over (and prints a
// warning to standard error) or if `stopped` returns true. Returns an error if the server could not
// be reached.
absl::StatusOr<bool> AwaitCaughtUp(Client& client, const std::string& server,
                                   double timeout_seconds,
                                   const std::function<bool()>& stopped = nullptr);

// Prints a server's answer and returns the exit status: kLiveFailed if printing failed, or if the
// server had not caught up, because the answer is incomplete then.
int LiveAnswer(const std::string& text, bool caught_up);

}  // namespace plumbline::audit
