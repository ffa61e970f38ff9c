// The HTTP side of plumbd: is it alive, which version is it, its metrics. Loopback by default.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace plumbline::server {

class HttpServer {
 public:
  virtual ~HttpServer() = default;  // stops

  // What it shows besides. All of it is called from any thread and must outlive the server.
  struct Pages {
    std::string version;
    std::function<std::string()> metrics;  // in Prometheus' text format
  };

  // Unavailable when the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, Pages pages);
  // With the port that was found for port 0.
  virtual std::string address() const = 0;
};

}  // namespace plumbline::server
