// Sends requests to a receiver of alerts: limits the time and the bytes read, and never follows
// redirects.
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
  int status = 0;  // 0: no answer
  std::string body;
  std::string error;  // the reason if there is no answer
};

// Used by one thread, except Cancel.
class AlertHttpClient {
 public:
  explicit AlertHttpClient(const AlertRoute& route, const std::string& url);
  ~AlertHttpClient();

  // Sends a request. `path` is appended to that of the URL. The route's token, if it has one, is
  // added.
  HttpAnswer Do(const std::string& method, const std::string& path, const std::string& body,
                std::multimap<std::string, std::string> headers);
  void Cancel();

  const std::string& path() const { return url_.path; }

 private:
  HttpUrl url_;
  const AlertRoute route_;
  Mutex mutex_;  // guards the client's creation against Cancel
  std::unique_ptr<httplib::Client> client_ PLUMB_GUARDED_BY(mutex_);
  std::atomic<bool> cancelled_{false};
};

// Returns delivered for 2xx. 408, 425, 429, 5xx or no answer: may work later. Any other answer:
// refused.
SendResult ResultOf(const HttpAnswer& answer);

}  // namespace plumbline::server
