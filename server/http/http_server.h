// The HTTP side of plumbd: is it alive, which version is it. Loopback by default.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace plumbline::server {

class HttpServer {
 public:
  virtual ~HttpServer() = default;  // stops

  // Unavailable when the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           const std::string& version);
  // With the port that was found for port 0.
  virtual std::string address() const = 0;
};

}  // namespace plumbline::server
