// Which requests may not be answered whoever sends them: those that another site made a browser
// send.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "server/http/web.h"

namespace plumbline::server {

// Of a server that asks nobody for a token: only where it was called by an address, by the name
// that this host has for itself, or as localhost.
// A name could be another site's, which has turned it to this host (DNS rebinding) and so reads
// what its own page asks. PermissionDenied says what to do.
absl::Status CheckHost(std::string_view host);

// The same of what is scraped: names without a point pass, too. They are a network's own ("plumbd"
// of a compose file or a cluster), and no site of the web has one. So does a request that names
// nobody, which no browser sends.
absl::Status CheckScrapeHost(std::string_view host);

// Of a request that changes something: a browser must say that a page of this server sent it. A
// client that is no browser shows a token itself; with the cookie alone it is refused.
// PermissionDenied.
absl::Status CheckSameOrigin(const WebRequest& request);

}  // namespace plumbline::server
