// Requests to a receiver of alerts: bounded in time and in what is read, never redirected.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "server/alerts/sink.h"
#include "server/settings/alert_config.h"

namespace httplib {
class Client;
}

namespace plumbline::server {

struct HttpAnswer {
  int status = 0;  // 0: there was none
  std::string body;
  std::string error;  // without an answer: why
};

// Used by one thread, but for Cancel.
class AlertHttpClient {
 public:
  explicit AlertHttpClient(const AlertRoute& route, const std::string& url);
  ~AlertHttpClient();

  // `path` is appended to that of the URL. The token of the route, if it has one, goes with it.
  HttpAnswer Do(const std::string& method, const std::string& path, const std::string& body,
                std::multimap<std::string, std::string> headers);
  void Cancel();

  const std::string& path() const { return url_.path; }

 private:
  HttpUrl url_;
  const AlertRoute route_;
  Mutex mutex_;  // guards the client's making against Cancel
  std::unique_ptr<httplib::Client> client_ PLUMB_GUARDED_BY(mutex_);
  std::atomic<bool> cancelled_{false};
};

// 2xx: delivered. 408, 425, 429, 5xx or none: may work later. Anything else never will.
SendResult ResultOf(const HttpAnswer& answer);

}  // namespace plumbline::server
