// Which requests may not be answered whoever sends them: those that another site made a browser
// send.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace plumbline::server {

// Of a server that asks nobody for a token: only where it was called by an address, by the name
// that this host has for itself, or as localhost, in any case and with or without the point that
// ends a whole name.
// A name could be another site's, which has turned it to this host (DNS rebinding) and so reads
// what its own page asks. PermissionDenied says what to do.
absl::Status CheckHost(std::string_view host);

// The same of what is scraped: names without a point pass, too. They are a network's own ("plumbd"
// of a compose file or a cluster), and no site of the web has one. So does a request that names
// nobody, which no browser sends.
absl::Status CheckScrapeHost(std::string_view host);

}  // namespace plumbline::server
