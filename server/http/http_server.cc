#include "server/http/http_server.h"

#include <httplib.h>

#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

constexpr size_t kThreads = 8;  // a connection that is kept alive holds one

// The files are read at each handshake: a renewed certificate needs no restart.
std::unique_ptr<httplib::Server> MakeTlsServer(const std::string& cert, const std::string& key) {
  struct Files {
    std::string cert, key;
  };
  auto* files = new Files{cert, key};  // as long as the process: the context has no owner for it
  return std::make_unique<httplib::SSLServer>([files](SSL_CTX& context) {
    SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION);
    SSL_CTX_set_cert_cb(
        &context,
        [](SSL* connection, void* argument) {
          const auto* f = static_cast<const Files*>(argument);
          return static_cast<int>(
              SSL_use_certificate_chain_file(connection, f->cert.c_str()) == 1 &&
              SSL_use_PrivateKey_file(connection, f->key.c_str(), SSL_FILETYPE_PEM) == 1);
        },
        files);
    return true;
  });
}

class HttpServerImpl : public HttpServer {
 public:
  ~HttpServerImpl() override {
    if (server_ != nullptr) server_->stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Init(const std::string& address, Pages pages, const HttpOptions& options) {
    server_ = options.tls_cert.empty() ? std::make_unique<httplib::Server>()
                                       : MakeTlsServer(options.tls_cert, options.tls_key);
    AskAtTheDoor(options);
    server_->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_->set_keep_alive_timeout(5);
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
  void AskAtTheDoor(const HttpOptions& options) {
    using Answer = httplib::Server::HandlerResponse;
    server_->set_pre_routing_handler(
        [admit = options.admit](const httplib::Request& request, httplib::Response& response) {
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

  std::unique_ptr<httplib::Server> server_;
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
