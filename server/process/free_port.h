// Checks whether a server can listen on an address. Call it before anything else is opened, because
// a server that cannot listen must not touch a journal.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace plumbline::server {

// `address`: HOST:PORT, or unix:PATH, which is not checked. `option` is named in the message.
// Returns InvalidArgument with one line if the port is in use, may not be used, or the host is not
// one of ours. If a host has several addresses, all must be free. A port that is taken later is
// detected when plumbd listens.
absl::Status CheckPortIsFree(const std::string& address, const std::string& option);

}  // namespace plumbline::server
