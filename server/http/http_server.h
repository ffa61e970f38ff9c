// The HTTP side of plumbd: health, version, metrics, browser sessions, and the page (server/web).
// Loopback by default; TLS with [tls].
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/http/web.h"
#include "server/process/counters.h"

namespace plumbline::server {

struct HttpOptions {
  std::string tls_cert, tls_key;  // read again if they change; empty: plain HTTP
  // Called before every path but /healthz; `Pages::web` checks access itself. If it returns
  // Unauthenticated, the answer is 401; for other errors, 403. Null: no access control.
  std::function<absl::Status(const HttpCaller&)> admit;
  // Opens a session for the sender of an Authorization header. Returns its id, or an empty text
  // without access control. Null: no access control.
  std::function<absl::StatusOr<std::string>(std::string_view authorization)> open_session;
  std::function<void(const std::string& session)> close_session;  // null: there are none
  int session_seconds = 0;
  Counters* counters = nullptr;  // must outlive the server
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;  // stops

  // The other answers. Every function may be called from any thread and must outlive the server.
  struct Pages {
    std::string version;
    std::function<std::string()> metrics;  // in Prometheus' text format
    std::function<absl::Status()> health;  // null: always healthy
    // The page: paths that begin with kWebPath, and these files, which are public. Null: there is
    // none.
    WebHandler web;
    std::vector<std::string> web_files;
  };

  // Starts the server. Returns Unavailable if it cannot listen on the address.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, Pages pages,
                                                           const HttpOptions& options);
  // Returns the address, with the actual port if it was 0.
  virtual std::string address() const = 0;
};

}  // namespace plumbline::server
