#include "server/http/http_server.h"

#include <httplib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/http/http_front.h"

namespace plumbline::server {
namespace {

constexpr std::string_view kCookie = "plumbline_session=";

// A request that is whole, and room for its answer: the library never sees a socket.
class WholeRequest : public httplib::Stream {
 public:
  explicit WholeRequest(const std::string& request) : request_(request) {}
  std::string TakeAnswer() { return std::move(answer_); }

  bool is_readable() const override { return at_ < request_.size(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* out, size_t size) override {
    const size_t n = std::min(size, request_.size() - at_);
    std::memcpy(out, request_.data() + at_, n);
    at_ += n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* data, size_t size) override {
    answer_.append(data, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return INVALID_SOCKET; }

 private:
  const std::string& request_;
  size_t at_ = 0;
  std::string answer_;
};

// The library's routes and its answers, without its sockets and threads.
class Routes : public httplib::Server {
 public:
  std::string AnswerTo(const RequestHead& request) {
    WholeRequest stream(request.forwarded);
    bool closed = false;
    process_request(stream, request.close, closed, nullptr);
    return stream.TakeAnswer();
  }
};

std::string SessionOf(const std::string& cookies) {
  for (std::string_view rest = cookies; !rest.empty();) {
    const size_t end = rest.find(';');
    std::string_view one = rest.substr(0, end);
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    if (one.substr(0, kCookie.size()) == kCookie) return std::string(one.substr(kCookie.size()));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return "";
}

void SayRefused(const absl::Status& status, httplib::Response* response) {
  response->status = absl::IsUnauthenticated(status) ? 401 : 403;
  if (response->status == 401) response->set_header("WWW-Authenticate", "Bearer");
  response->set_content(absl::StrCat(std::string(status.message()), "\n"), "text/plain");
}

class HttpServerImpl : public HttpServer {
 public:
  HttpServerImpl(Pages pages, HttpOptions options)
      : pages_(std::move(pages)), options_(std::move(options)) {}

  absl::Status Listen(const std::string& address) {
    auto listener = Listener::Open(address);
    if (!listener.ok()) return listener.status();
    address_ = listener->address();
    std::unique_ptr<TlsFiles> tls;
    if (!options_.tls_cert.empty()) {
      tls = std::make_unique<TlsFiles>(options_.tls_cert, options_.tls_key);
    }
    routes_.set_default_headers(
        {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}});
    AskAtTheDoor();
    AddPages();
    front_ = std::make_unique<HttpFront>(
        *std::move(listener), std::move(tls),
        [this](const RequestHead& request) { return routes_.AnswerTo(request); },
        options_.counters);
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;

  // Before any path is looked at, so that no handler can forget it. A POST brings its own token.
  void AskAtTheDoor() {
    using Answer = httplib::Server::HandlerResponse;
    routes_.set_pre_routing_handler([this](const Request& request, Response& response) {
      const bool open = request.path == "/healthz" || request.method == "POST";
      if (options_.admit == nullptr || open) return Answer::Unhandled;
      const absl::Status status = options_.admit({request.get_header_value("Authorization"),
                                                  SessionOf(request.get_header_value("Cookie"))});
      if (status.ok()) return Answer::Unhandled;
      SayRefused(status, &response);
      return Answer::Handled;
    });
  }

  void AddPages() {
    routes_.Get("/healthz", [this](const Request&, Response& response) { Health(&response); });
    routes_.Get("/version", [this](const Request&, Response& response) {
      response.set_content(absl::StrCat("{\"version\":\"", pages_.version, "\"}\n"),
                           "application/json");
    });
    routes_.Get("/metrics", [this](const Request&, Response& response) {
      response.set_content(pages_.metrics(), "text/plain; version=0.0.4; charset=utf-8");
    });
    routes_.Post(std::string(kSessionPath), [this](const Request& request, Response& response) {
      OpenSession(request, &response);
    });
  }

  void Health(Response* response) const {
    const absl::Status status = pages_.health == nullptr ? absl::OkStatus() : pages_.health();
    response->status = status.ok() ? 200 : 503;
    response->set_content(
        status.ok() ? "ok\n" : absl::StrCat("not serving: ", std::string(status.message()), "\n"),
        "text/plain");
  }

  // The cookie is no use to scripts, nor to pages of others.
  void OpenSession(const Request& request, Response* response) const {
    absl::StatusOr<std::string> id = std::string();
    if (options_.open_session != nullptr) {
      id = options_.open_session(request.get_header_value("Authorization"));
    }
    if (!id.ok()) return SayRefused(id.status(), response);
    response->status = 204;
    if (id->empty()) return;
    response->set_header("Set-Cookie",
                         absl::StrCat(std::string(kCookie), *id, "; Path=/; HttpOnly; ",
                                      "SameSite=Strict; Max-Age=", options_.session_seconds,
                                      options_.tls_cert.empty() ? "" : "; Secure"));
  }

  const Pages pages_;
  const HttpOptions options_;
  Routes routes_;
  std::string address_;
  std::unique_ptr<HttpFront> front_;  // goes first
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              Pages pages,
                                                              const HttpOptions& options) {
  auto server = std::make_unique<HttpServerImpl>(std::move(pages), options);
  if (auto s = server->Listen(address); !s.ok()) return s;
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace plumbline::server
