// A listening TCP socket.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace plumbline::server {

class Listener {
 public:
  // Listens on `address`, HOST:PORT; port 0 takes a free one. Returns InvalidArgument if it is not
  // an address, Unavailable if it cannot listen there.
  static absl::StatusOr<Listener> Open(const std::string& address);
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  int socket() const { return socket_; }
  const std::string& address() const { return address_; }  // with the actual port

  // Returns a waiting connection, non-blocking; -1 if there is none, or no file may be opened
  // (errno).
  int Accept() const;

 private:
  Listener(int socket, std::string address) : socket_(socket), address_(std::move(address)) {}

  int socket_;
  std::string address_;
};

}  // namespace plumbline::server
