// Sends gRPC's log to plumbd's log.
#pragma once

namespace plumbline::server {

// Logs gRPC's errors, mostly of handshakes, as warnings, at most one a second, so that a client
// that connects ten thousand times does not fill a disk. Call before gRPC is used.
void TakeOverGrpcLog();

}  // namespace plumbline::server
