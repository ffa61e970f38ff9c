// A TCP socket that listens.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace plumbline::server {

class Listener {
 public:
  // `address`: HOST:PORT; port 0 takes a free one. InvalidArgument: it is no address. Unavailable:
  // it cannot be listened on.
  static absl::StatusOr<Listener> Open(const std::string& address);
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  int socket() const { return socket_; }
  const std::string& address() const { return address_; }  // with the port that was found

  // A connection that waits, not blocking; -1: none, or no file may be opened (errno).
  int Accept() const;

 private:
  Listener(int socket, std::string address) : socket_(socket), address_(std::move(address)) {}

  int socket_;
  std::string address_;
};

}  // namespace plumbline::server
