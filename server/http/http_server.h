// The HTTP side of plumbd: is it alive, which version is it, its metrics. Loopback by default; TLS
// with [tls].
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline::server {

struct HttpOptions {
  std::string tls_cert, tls_key;  // read at each handshake; empty: plain HTTP
  // Asked before every path but /healthz, with the Authorization header; Unauthenticated is
  // answered with 401, anything else with 403. Null: nobody is asked.
  std::function<absl::Status(std::string_view authorization)> admit;
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;  // stops

  // What it shows besides. All of it is called from any thread and must outlive the server.
  struct Pages {
    std::string version;
    std::function<std::string()> metrics;  // in Prometheus' text format
  };

  // Unavailable when the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, Pages pages,
                                                           const HttpOptions& options = {});
  // With the port that was found for port 0.
  virtual std::string address() const = 0;
};

}  // namespace plumbline::server
