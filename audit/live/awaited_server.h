// Prints that a command waits, while no server answers.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "audit/live/client.h"

namespace plumbline::audit {

// Returns true if the same request would be refused again.
bool Permanent(const absl::Status& status);

// Waits until a server answers or refuses, or `stopped` returns true, and returns false. If no
// server answers within 5 s, prints "plumb COMMAND: waiting for SERVER ..." and returns true.
bool ReportThatWeWait(const std::string& command, Client& client, const std::string& server,
                      const std::function<bool()>& stopped);

}  // namespace plumbline::audit
