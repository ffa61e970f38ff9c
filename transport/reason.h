// Why a server was not reached, in words for people.
#pragma once

#include <string>

namespace plumbline::transport {

// Does gRPC's text say that HTTP/1 is spoken there, in the clear or over TLS?
bool SpeaksHttp1(const std::string& said);

// The reason in gRPC's text for a call that reached nobody: "Connection refused", or what the
// mistake most likely is. Its text as it is where nothing is known of it.
std::string WhyUnreachable(const std::string& said);

}  // namespace plumbline::transport
