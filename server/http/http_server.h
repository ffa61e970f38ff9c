// The HTTP side of plumbd: is it alive, which version is it, its metrics, sessions of a browser,
// and the page (server/web). Loopback by default; TLS with [tls].
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
  std::string tls_cert, tls_key;  // read again when they change; empty: plain HTTP
  // Asked before every path but /healthz; `Pages::web` asks for itself. Unauthenticated is answered
  // with 401, anything else with 403. Null: nobody is asked.
  std::function<absl::Status(const HttpCaller&)> admit;
  // A session for the sender of an Authorization header: its id, empty where nobody is asked. Null:
  // likewise.
  std::function<absl::StatusOr<std::string>(std::string_view authorization)> open_session;
  std::function<void(const std::string& session)> close_session;  // null: there are none
  int session_seconds = 0;
  Counters* counters = nullptr;  // must outlive the server
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;  // stops

  // What it shows besides. All of it is called from any thread and must outlive the server.
  struct Pages {
    std::string version;
    std::function<std::string()> metrics;  // in Prometheus' text format
    std::function<absl::Status()> health;  // null: it always serves
    // The page: what begins with kWebPath, and these files, which anybody may have. Null: there is
    // none.
    WebHandler web;
    std::vector<std::string> web_files;
  };

  // Unavailable when the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, Pages pages,
                                                           const HttpOptions& options);
  // With the port that was found for port 0.
  virtual std::string address() const = 0;
};

}  // namespace plumbline::server
