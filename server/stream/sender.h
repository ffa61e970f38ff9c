// Identifies the sender of a hello for the limits on what one sender may use.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::server {

struct Sender {
  std::string entries;  // access entries of the caller (Lease::Names); empty: no access control
  std::string address;  // of the caller, without its port
  std::string after;    // address of a process connected through a relay, as the relay reports it;
                        // empty: none
  std::string connection = {};  // connection by which the hello came; empty: unknown
  std::string line = {};        // the connection between the process and its relay; empty: none
};

// Returns the address of a gRPC peer without its port: "192.0.2.1", "unix". Of an IPv6 address
// returns the network "2001:db8:0:1::/64", since one host may use all of it. Returns other forms
// unchanged, at most 64 bytes.
std::string AddressOf(std::string_view grpc_peer);

// Returns a name of the connection by which a call came: the peer with its port, at most 128 bytes.
// Calls over a Unix socket have no port; each of them counts as a connection.
std::string ConnectionOf(std::string_view grpc_peer);

}  // namespace plumbline::server
