// Is an address free to be listened on? Asked before anything else is opened, since a server that
// may not listen has no business in a journal.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace plumbline::server {

// `address`: HOST:PORT or unix:PATH, of which nothing is asked; `option` is named in what is said.
// InvalidArgument, one line: the port is in use, may not be used, or the host is none of ours. A
// host that has several addresses must be free at all. Whoever takes the port in between is found
// when plumbd listens.
absl::Status CheckPortIsFree(const std::string& address, const std::string& option);

}  // namespace plumbline::server
