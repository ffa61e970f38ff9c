#include "server/http/http_server.h"

#include <httplib.h>
#include <openssl/ssl.h>

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/http/http_connection.h"

namespace plumbline::server {
namespace {

// Together they bound how long others wait for N connections that trickle: N / kThreads * kRequest.
constexpr size_t kThreads = 32;  // a connection that is kept alive holds one
constexpr std::chrono::seconds kRequest{
    5};  // to the end of its headers, from the first byte or the handshake
constexpr std::chrono::seconds kAnswer{30};  // from then on, until it is taken
constexpr std::chrono::seconds kKeepAlive{5};

using TlsContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

// The files are read at each handshake: a renewed certificate needs no restart. `options` must
// outlive it.
TlsContext MakeTlsContext(const HttpOptions* options) {
  TlsContext context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  if (context == nullptr) return context;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_cert_cb(
      context.get(),
      [](SSL* connection, void* argument) {
        const auto* o = static_cast<const HttpOptions*>(argument);
        return static_cast<int>(
            SSL_use_certificate_chain_file(connection, o->tls_cert.c_str()) == 1 &&
            SSL_use_PrivateKey_file(connection, o->tls_key.c_str(), SSL_FILETYPE_PEM) == 1);
      },
      const_cast<HttpOptions*>(options));
  return context;
}

// The library's own server gives each read a time of its own, so a byte now and then holds one of
// its threads for hours. Here a request has one for all of it.
class BoundedServer : public httplib::Server {
 public:
  explicit BoundedServer(TlsContext tls) : tls_(std::move(tls)) {}

  // Its headers have come: from here on it is answered. Of the calling thread's connection, since
  // the library's handlers are not told theirs.
  static void RequestIsWhole() { current_->AllowUntil(HttpConnection::Clock::now() + kAnswer); }

 private:
  bool process_and_close_socket(socket_t socket) override {
    HttpConnection connection(socket, &svr_sock_);
    const auto allow = [&](auto time) {
      connection.AllowUntil(HttpConnection::Clock::now() + time);
    };
    allow(kRequest);
    if (tls_ != nullptr && !connection.BeginTls(tls_.get())) return false;
    current_ = &connection;
    for (size_t left = keep_alive_max_count_; left > 0; --left) {
      bool closed = false;
      if (!process_request(connection, left == 1, closed, nullptr) || closed) break;
      allow(kKeepAlive);
      if (!connection.is_readable()) break;
      allow(kRequest);
    }
    current_ = nullptr;
    return true;
  }

  static thread_local HttpConnection* current_;
  const TlsContext tls_;
};

thread_local HttpConnection* BoundedServer::current_ = nullptr;

class HttpServerImpl : public HttpServer {
 public:
  ~HttpServerImpl() override {
    if (server_ != nullptr) server_->stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Init(const std::string& address, Pages pages, const HttpOptions& options) {
    options_ = options;
    TlsContext tls(nullptr, &SSL_CTX_free);
    if (!options_.tls_cert.empty()) {
      tls = MakeTlsContext(&options_);
      if (tls == nullptr) return absl::InternalError("no TLS context can be made");
    }
    server_ = std::make_unique<BoundedServer>(std::move(tls));
    AskAtTheDoor();
    server_->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_->set_payload_max_length(1 << 16);
    server_->Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("ok\n", "text/plain");
    });
    server_->Get("/version", [version = pages.version](const httplib::Request&,
                                                       httplib::Response& response) {
      response.set_content(absl::StrCat("{\"version\":\"", version, "\"}\n"), "application/json");
    });
    server_->Get("/metrics", [metrics = std::move(pages.metrics)](const httplib::Request&,
                                                                  httplib::Response& response) {
      response.set_content(metrics(), "text/plain; version=0.0.4; charset=utf-8");
    });
    return Listen(address);
  }

  std::string address() const override { return address_; }

 private:
  // Before any path is looked at, so that no handler can forget it.
  void AskAtTheDoor() {
    using Answer = httplib::Server::HandlerResponse;
    server_->set_pre_routing_handler(
        [&admit = options_.admit](const httplib::Request& request, httplib::Response& response) {
          BoundedServer::RequestIsWhole();
          if (admit == nullptr || request.path == "/healthz") return Answer::Unhandled;
          const absl::Status status = admit(request.get_header_value("Authorization"));
          if (status.ok()) return Answer::Unhandled;
          response.status = absl::IsUnauthenticated(status) ? 401 : 403;
          if (response.status == 401) response.set_header("WWW-Authenticate", "Bearer");
          response.set_content(absl::StrCat(std::string(status.message()), "\n"), "text/plain");
          return Answer::Handled;
        });
  }

  absl::Status Listen(const std::string& address) {
    const size_t colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    int port = 0;
    if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
      return absl::InvalidArgumentError(absl::StrCat("--http must be HOST:PORT, found ", address));
    }
    // The library's default sets SO_REUSEPORT: two servers would share the port by chance.
    server_->set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    const bool bound = port == 0 ? (port = server_->bind_to_any_port(host)) > 0
                                 : server_->bind_to_port(host, port);
    if (!bound) {
      return absl::UnavailableError(absl::StrCat(
          "cannot listen on ", address, ": is another plumbd running? (--http HOST:PORT, or off)"));
    }
    address_ = absl::StrCat(address.substr(0, colon), ":", port);
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    while (!server_->is_running()) std::this_thread::yield();  // stop() before it would be lost
    return absl::OkStatus();
  }

  HttpOptions options_;
  std::unique_ptr<BoundedServer> server_;
  std::string address_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              Pages pages,
                                                              const HttpOptions& options) {
  auto server = std::make_unique<HttpServerImpl>();
  if (auto s = server->Init(address, std::move(pages), options); !s.ok()) return s;
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace plumbline::server
