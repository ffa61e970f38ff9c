// Checks that a request which changes state was sent by a page of this server, not by a page of
// another site.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "server/http/web.h"

namespace plumbline::server {

// Returns the host's name in lower case, without port, brackets or a final point, so that equal
// hosts compare equal. Empty if there is none.
std::string HostName(std::string_view host);

// Returns PermissionDenied if a browser states that another site sent the request: `Origin` and
// `Sec-Fetch-Site`, if present, must name this server.
absl::Status CheckNotForeign(const WebRequest& request);

// Does the same, and also requires proof: from a browser that a page of this server sent it, or
// from another client a token. With only a cookie, returns PermissionDenied.
absl::Status CheckSameOrigin(const WebRequest& request);

}  // namespace plumbline::server
