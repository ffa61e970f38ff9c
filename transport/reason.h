// Explains in plain text why a server was not reached.
#pragma once

#include <string>

namespace plumbline::transport {

// Returns true if gRPC's text shows that the peer speaks HTTP/1, with or without TLS.
bool SpeaksHttp1(const std::string& stated);

// Returns the reason in gRPC's text for a call that reached no server: "Connection refused", or the
// most likely mistake. Returns the text itself if it is unknown.
std::string WhyUnreachable(const std::string& stated);

}  // namespace plumbline::transport
