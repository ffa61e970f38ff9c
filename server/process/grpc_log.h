// What gRPC has to say goes into our log.
#pragma once

namespace plumbline::server {

// Errors of gRPC, of handshakes above all, become warnings of ours, one a second at most: who
// knocks ten thousand times does not fill a disk. Before gRPC is used.
void TakeOverGrpcLog();

}  // namespace plumbline::server
