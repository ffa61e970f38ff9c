#include "server/alerts/http_client.h"

#include <httplib.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/printable.h"

namespace plumbline::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostRead = 64 << 10;  // of an answer
constexpr size_t kMostShownOfAnswer = 200;

std::string Joined(const std::string& root, const std::string& path) {
  if (path.empty()) return root;
  return (root.back() == '/' ? root.substr(0, root.size() - 1) : root) + path;
}

}  // namespace

AlertHttpClient::AlertHttpClient(const AlertRoute& route, const std::string& url) : route_(route) {
  ParseHttpUrl(url, &url_).IgnoreError();  // it was validated before
}

AlertHttpClient::~AlertHttpClient() = default;

HttpAnswer AlertHttpClient::Do(const std::string& method, const std::string& path,
                               const std::string& body,
                               std::multimap<std::string, std::string> headers) {
  HttpAnswer answer;
  const auto timeout =
      std::chrono::microseconds(static_cast<int64_t>(route_.timeout_seconds * 1e6));
  if (!route_.token_file.empty()) {
    std::string token;
    if (auto s = ReadSecret(route_.token_file, 1, &token); !s.ok()) {
      answer.error = "token_file " + std::string(s.message());
      return answer;
    }
    headers.emplace("Authorization", "Bearer " + token);
  }
  httplib::Client* client = nullptr;
  {
    const MutexLock lock(mutex_);
    // One connection per request: requests are rare, and a new connection uses a changed address.
    client_ = std::make_unique<httplib::Client>(url_.origin);
    client = client_.get();
  }
  client->set_connection_timeout(timeout);
  client->set_read_timeout(timeout);
  client->set_write_timeout(timeout);
  client->set_follow_location(false);
  client->set_url_encode(false);
  client->set_tcp_nodelay(true);
  if (!route_.ca_file.empty()) client->set_ca_cert_path(route_.ca_file);
  client->enable_server_certificate_verification(true);

  httplib::Request request;
  request.method = method;
  request.path = Joined(url_.path, path);
  request.body = body;
  for (auto& [name, value] : headers) request.set_header(name, value);
  if (!body.empty()) request.set_header("Content-Type", "application/json");
  const Clock::time_point end = Clock::now() + timeout;
  request.response_handler = [&](const httplib::Response& response) {
    answer.status = response.status;  // valid even if the body is cut
    return true;
  };
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    answer.body.append(data, std::min(size, kMostRead - answer.body.size()));
    return answer.body.size() < kMostRead && Clock::now() < end && !cancelled_;
  };
  if (cancelled_) {
    answer.error = "plumbd is stopping";
    return answer;
  }
  const httplib::Result result = client->send(request);
  if (result) {
    answer.status = result->status;
  } else if (answer.status == 0) {
    answer.error = absl::StrCat(url_.origin, ": ", httplib::to_string(result.error()));
  }
  return answer;
}

void AlertHttpClient::Cancel() {
  cancelled_ = true;
  const MutexLock lock(mutex_);
  if (client_ != nullptr) client_->stop();
}

SendResult ResultOf(const HttpAnswer& answer) {
  SendResult result;
  if (answer.status >= 200 && answer.status < 300) return result;
  if (answer.status == 0) {
    result.kind = SendResult::Kind::kTryAgain;
    result.detail = answer.error;
    return result;
  }
  const bool later =
      answer.status == 408 || answer.status == 425 || answer.status == 429 || answer.status >= 500;
  result.kind = later ? SendResult::Kind::kTryAgain : SendResult::Kind::kRefused;
  result.detail = absl::StrCat("status ", answer.status, ": ",
                               Printable(answer.body.substr(0, kMostShownOfAnswer)));
  return result;
}

}  // namespace plumbline::server
