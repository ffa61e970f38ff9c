// Refuses requests that another site made a browser send, with any credentials.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace plumbline::server {

// For a server without access control. Returns OK only if it was called by an address, by this
// host's name, or as localhost, in upper or lower case and with or without a final dot. Another
// name could belong to another site that points it to this host (DNS rebinding), whose page could
// then read the answers. PermissionDenied states the fix.
absl::Status CheckHost(std::string_view host);

// Does the same for scraped paths: names without a dot pass, too. They belong to a local network
// ("plumbd" of a compose file or a cluster), and no site of the web has one. A request without a
// name also passes, because no browser sends one.
absl::Status CheckScrapeHost(std::string_view host);

}  // namespace plumbline::server
