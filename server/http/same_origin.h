// Did a page of this server send a request that changes something, or one of another site?
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "server/http/web.h"

namespace plumbline::server {

// Lower case, without port, brackets or the one point at the end that says that a name is whole:
// names of hosts are the same however they are written. Empty: there is none.
std::string HostName(std::string_view host);

// A browser must not say that another site sent it: `Origin` and `Sec-Fetch-Site`, where they are
// there, name this server. PermissionDenied.
absl::Status CheckNotForeign(const WebRequest& request);

// The same, and somebody vouches for it: a browser that a page of this server sent it, or a client
// that is none by a token of its own. With a cookie alone it is refused. PermissionDenied.
absl::Status CheckSameOrigin(const WebRequest& request);

}  // namespace plumbline::server
