#include "server/http/http_server.h"

#include <httplib.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/http/http_front.h"
#include "server/http/same_origin.h"

namespace plumbline::server {
namespace {

constexpr std::string_view kCookie = "plumbline_session=";

// A stream with a complete request and a buffer for its answer, so that the library needs no
// socket.
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

// The library's routes and answers, without its sockets and threads.
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

void DescribeRefused(const absl::Status& status, httplib::Response* response) {
  response->status = absl::IsUnauthenticated(status) ? 401 : 403;
  if (response->status == 401) response->set_header("WWW-Authenticate", "Bearer");
  response->set_content(absl::StrCat(std::string(status.message()), "\n"), "text/plain");
}

// The head of an answer that lasts as long as the connection.
constexpr const char* kEventsHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n";

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
    QueryHostCheck();
    AddPages();
    front_ = std::make_unique<HttpFront>(
        *std::move(listener), std::move(tls),
        [this](const RequestHead& request) { return AnswerTo(request); }, options_.counters);
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;

  HttpFront::Reply AnswerTo(const RequestHead& request) {
    events_ = nullptr;
    packed_.reset();
    HttpFront::Reply reply{routes_.AnswerTo(request), std::move(events_)};
    if (reply.events != nullptr) reply.bytes = kEventsHead;
    if (packed_) reply.bytes = PackedText(request, *packed_);
    return reply;
  }

  // Checks access before any path is handled, so that no handler can forget it. A session request
  // has its own token, and the page's service checks access itself, by run.
  void QueryHostCheck() {
    using Answer = httplib::Server::HandlerResponse;
    routes_.set_pre_routing_handler([this](const Request& request, Response& response) {
      const bool session = request.path == kSessionPath && request.method != "GET";
      if (!session && IsOfThePage(request.target)) {
        QueryWeb(request, &response);
        return Answer::Handled;
      }
      if (session && !MayChangeSession(request, &response)) return Answer::Handled;
      const bool open = request.path == "/healthz" || session;
      if (options_.admit == nullptr || open) return Answer::Unhandled;
      const absl::Status status = options_.admit(CallerOf(request));
      if (status.ok()) return Answer::Unhandled;
      DescribeRefused(status, &response);
      return Answer::Handled;
    });
  }

  // A request to open a session must also have a token, which is checked next. To end one only
  // needs a cookie, which is not enough, so the origin is checked.
  static bool MayChangeSession(const Request& request, Response* response) {
    const WebRequest sent = WebRequestOf(request);
    const absl::Status status =
        request.method == "DELETE" ? CheckSameOrigin(sent) : CheckNotForeign(sent);
    if (!status.ok()) DescribeRefused(status, response);
    return status.ok();
  }

  // Compares the target as it was sent. Other spellings of a path are left to the routes.
  bool IsOfThePage(const std::string& target) const {
    if (pages_.web == nullptr) return false;
    const std::string path = target.substr(0, target.find_first_of("?#"));
    return path.compare(0, kWebPath.size(), kWebPath) == 0 ||
           std::find(pages_.web_files.begin(), pages_.web_files.end(), path) !=
               pages_.web_files.end();
  }

  void QueryWeb(const Request& request, Response* response) const {
    WebAnswer answer = pages_.web(WebRequestOf(request));
    response->status = answer.status;
    for (const auto& [name, value] : answer.headers) {
      response->headers.erase(name);
      response->set_header(name, value);
    }
    if (answer.gzip && answer.status == 200) {
      packed_ = std::move(answer);
      return;
    }
    if (answer.status != 204 && answer.status != 304) {
      response->set_content(std::move(answer.body), answer.type);
    }
    if (request.method == "GET") events_ = std::move(answer.events);
  }

  // Writes a compressed answer here, because the library would compress it again.
  static std::string PackedText(const RequestHead& request, const WebAnswer& answer) {
    std::string text = absl::StrCat("HTTP/1.1 200 OK\r\nContent-Type: ", answer.type,
                                    "\r\nContent-Encoding: gzip\r\n"
                                    "X-Content-Type-Options: nosniff\r\nContent-Length: ",
                                    answer.body.size(), "\r\n");
    for (const auto& [name, value] : answer.headers)
      absl::StrAppend(&text, name, ": ", value, "\r\n");
    absl::StrAppend(&text, request.close ? "Connection: close\r\n\r\n" : "\r\n");
    const bool head = request.forwarded.compare(0, 5, "HEAD ") == 0;
    return head ? text : text + answer.body;
  }

  static HttpCaller CallerOf(const Request& request) {
    return {request.get_header_value("Authorization"),
            SessionOf(request.get_header_value("Cookie")), request.get_header_value("Host")};
  }

  static WebRequest WebRequestOf(const Request& request) {
    WebRequest web;
    web.method = request.method;
    web.path = request.target.substr(0, request.target.find_first_of("?#"));
    for (const auto& [name, value] : request.params) web.params.emplace_back(name, value);
    web.caller = CallerOf(request);
    web.host = request.get_header_value("Host");
    web.origin = request.get_header_value("Origin");
    web.fetch_site = request.get_header_value("Sec-Fetch-Site");
    web.update = request.get_header_value("Plumbline-Update");
    web.last_event = request.get_header_value("Last-Event-ID");
    web.known_tag = request.get_header_value("If-None-Match");
    web.takes_gzip = request.has_header("Accept-Encoding");  // only gzip is passed on
    return web;
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
    routes_.Delete(std::string(kSessionPath), [this](const Request& request, Response& response) {
      if (options_.close_session != nullptr) {
        options_.close_session(SessionOf(request.get_header_value("Cookie")));
      }
      response.status = 204;
      SetCookie("", 0, &response);
    });
  }

  void Health(Response* response) const {
    const absl::Status status = pages_.health == nullptr ? absl::OkStatus() : pages_.health();
    response->status = status.ok() ? 200 : 503;
    response->set_content(
        status.ok() ? "ok\n" : absl::StrCat("not serving: ", std::string(status.message()), "\n"),
        "text/plain");
  }

  // Opens a session. Scripts and other sites cannot use its cookie.
  void OpenSession(const Request& request, Response* response) const {
    absl::StatusOr<std::string> id = std::string();
    if (options_.open_session != nullptr) {
      id = options_.open_session(request.get_header_value("Authorization"));
    }
    if (!id.ok()) return DescribeRefused(id.status(), response);
    response->status = 204;
    if (id->empty()) return;
    SetCookie(*id, options_.session_seconds, response);
  }

  void SetCookie(const std::string& id, int seconds, Response* response) const {
    response->set_header("Set-Cookie",
                         absl::StrCat(std::string(kCookie), id, "; Path=/; HttpOnly; ",
                                      "SameSite=Strict; Max-Age=", seconds,
                                      options_.tls_cert.empty() ? "" : "; Secure"));
  }

  const Pages pages_;
  const HttpOptions options_;
  Routes routes_;
  std::string address_;
  // Belong to the request that is being answered.
  static thread_local std::shared_ptr<EventSource> events_;
  static thread_local std::optional<WebAnswer> packed_;
  std::unique_ptr<HttpFront> front_;  // destroyed first
};

thread_local std::shared_ptr<EventSource> HttpServerImpl::events_;
thread_local std::optional<WebAnswer> HttpServerImpl::packed_;

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              Pages pages,
                                                              const HttpOptions& options) {
  auto server = std::make_unique<HttpServerImpl>(std::move(pages), options);
  if (auto s = server->Listen(address); !s.ok()) return s;
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace plumbline::server
