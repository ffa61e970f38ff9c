// A receiver of notifications on loopback, incidents to notify of, and Debian's Alertmanager.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "server/incidents/incident_table.h"
#include "tests/server/support.h"

namespace httplib {
class Server;
}

namespace plumbline::test {

struct ReceivedRequest {
  std::string method, path, body;
  std::map<std::string, std::string> headers;
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
};

// Answers every request with one status, and stores it.
class HttpReceiver {
 public:
  HttpReceiver();
  HttpReceiver(const std::string& certificate_file, const std::string& key_file);  // with TLS
  ~HttpReceiver();
  std::string url(const std::string& path = "") const;
  int port() const { return port_; }
  void Answer(int status);
  std::vector<ReceivedRequest> requests() const;
  // Returns the requests' bodies once there are `count`; fewer after kPatience.
  std::vector<nlohmann::json> Wait(size_t count) const;

 private:
  void Start();

  std::unique_ptr<httplib::Server> server_;
  bool encrypted_ = false;
  int port_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  int status_ = 200;
  std::vector<ReceivedRequest> requests_;
};

// Sends a GET; returns the body, or an empty text.
std::string HttpGet(const std::string& address, const std::string& path);

// Debian's Alertmanager on loopback, which sends to a webhook receiver.
class Alertmanager {
 public:
  // Groups by fingerprint, without waiting. If not ok(), see errors().
  explicit Alertmanager(const std::string& webhook_url);
  bool ok() const { return ok_; }
  std::string url() const { return "http://" + address_; }
  const std::string& address() const { return address_; }
  nlohmann::json Alerts() const;  // GET /api/v2/alerts
  std::string errors() const { return process_->errors(); }

 private:
  void Start(const std::string& webhook_url);

  TempFolder folder_;
  std::string address_;
  std::unique_ptr<Process> process_;
  bool ok_ = false;
};

// Debian's Prometheus on loopback: scrapes plumbd at `target` twice a second, evaluates the
// repository's alert rules as often, and sends firing alerts to `alertmanager` (HOST:PORT; empty:
// none).
class Prometheus {
 public:
  Prometheus(const std::string& target, const std::string& alertmanager = "");
  nlohmann::json Get(const std::string& path) const;  // discarded if nothing valid is returned
  // Returns the instant value of `expression` (already URL-encoded); empty if there is no series.
  std::string Value(const std::string& expression) const;
  // Returns the alert's label `label` if it fires; otherwise an empty text.
  std::string Firing(const std::string& alert, const std::string& label) const;
  std::string errors() const { return process_->errors(); }

 private:
  TempFolder folder_;
  std::string address_;
  std::unique_ptr<Process> process_;
};

// Writes a file of one line that others cannot read.
void WriteSecret(const std::string& path, const std::string& line);

// Returns a port that was free a moment ago.
int FreePort();

v1::Finding AlertFinding(const std::string& fingerprint, v1::Level level = v1::LEVEL_ERROR,
                         const std::string& run = "run1");
v1::IncidentUpdate AlertUpdate(const std::string& fingerprint, v1::IncidentUpdate::Action action);

}  // namespace plumbline::test
