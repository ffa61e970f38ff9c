#include "tests/server/alerts/support.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace plumbline::test {

HttpReceiver::HttpReceiver() : server_(std::make_unique<httplib::Server>()) { Start(); }

HttpReceiver::HttpReceiver(const std::string& certificate_file, const std::string& key_file)
    : server_(std::make_unique<httplib::SSLServer>(certificate_file.c_str(), key_file.c_str())),
      encrypted_(true) {
  Start();
}

void HttpReceiver::Start() {
  const auto handle = [this](const httplib::Request& request, httplib::Response& response) {
    ReceivedRequest received{request.method, request.path, request.body, {}};
    for (const auto& [name, value] : request.headers) received.headers[name] = value;
    std::lock_guard lock(mutex_);
    requests_.push_back(std::move(received));
    response.status = status_;
    response.set_content("{}", "application/json");
  };
  server_->Post(".*", handle);
  server_->Delete(".*", handle);
  port_ = server_->bind_to_any_port("127.0.0.1");
  thread_ = std::thread([this] { server_->listen_after_bind(); });
  while (!server_->is_running()) std::this_thread::yield();
}

HttpReceiver::~HttpReceiver() {
  server_->stop();
  thread_.join();
}

std::string HttpReceiver::url(const std::string& path) const {
  return (encrypted_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_) + path;
}

void HttpReceiver::Answer(int status) {
  std::lock_guard lock(mutex_);
  status_ = status;
}

std::vector<ReceivedRequest> HttpReceiver::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<nlohmann::json> HttpReceiver::Wait(size_t count) const {
  Eventually([&] { return requests().size() >= count; });
  std::vector<nlohmann::json> out;
  for (const ReceivedRequest& r : requests()) out.push_back(r.json());
  return out;
}

std::string HttpGet(const std::string& address, const std::string& path) {
  httplib::Client client("http://" + address);
  const httplib::Result result = client.Get(path);
  return result && result->status == 200 ? result->body : "";
}

void WriteSecret(const std::string& path, const std::string& line) {
  std::ofstream(path) << line << "\n";
  chmod(path.c_str(), 0600);
}

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  int port = 0;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    port = ntohs(address.sin_port);
  }
  close(fd);
  return port;
}

Alertmanager::Alertmanager(const std::string& webhook_url) {
  // The port is free, unless another process takes it first.
  for (int i = 0; i < 3 && !ok_; ++i) Start(webhook_url);
}

void Alertmanager::Start(const std::string& webhook_url) {
  address_ = "127.0.0.1:" + std::to_string(FreePort());
  std::ofstream(folder_.File("alertmanager.yml"))
      << "route:\n  receiver: hook\n  group_by: [fingerprint]\n  group_wait: 0s\n"
         "  group_interval: 1s\n  repeat_interval: 1h\n"
         "receivers:\n  - name: hook\n    webhook_configs:\n      - url: '"
      << webhook_url << "'\n        send_resolved: true\n";
  process_ = std::make_unique<Process>(std::vector<std::string>{
      PLUMB_ALERTMANAGER, "--config.file=" + folder_.File("alertmanager.yml"),
      "--storage.path=" + folder_.File("data"), "--web.listen-address=" + address_,
      "--cluster.listen-address="});
  ok_ =
      Eventually([this] { return !process_->running() || !HttpGet(address_, "/-/ready").empty(); });
  ok_ = ok_ && process_->running();
}

nlohmann::json Alertmanager::Alerts() const {
  return nlohmann::json::parse(HttpGet(address_, "/api/v2/alerts"), nullptr, false);
}

Prometheus::Prometheus(const std::string& target, const std::string& alertmanager) {
  address_ = "127.0.0.1:" + std::to_string(FreePort());
  std::ofstream config(folder_.File("prometheus.yml"));
  config << "global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\n"
         << "rule_files: [" << PLUMB_SOURCE_DIR << "/dashboards/prometheus/plumbline.rules.yml]\n"
         << "scrape_configs:\n  - job_name: plumbd\n    static_configs: [{targets: [\"" << target
         << "\"]}]\n";
  if (!alertmanager.empty())
    config << "alerting: {alertmanagers: [{static_configs: [{targets: [\"" << alertmanager
           << "\"]}]}]}\n";
  config.close();
  process_ = std::make_unique<Process>(
      std::vector<std::string>{PLUMB_PROMETHEUS, "--config.file=" + folder_.File("prometheus.yml"),
                               "--storage.tsdb.path=" + folder_.File("tsdb"),
                               "--web.listen-address=" + address_, "--log.level=warn"});
}

nlohmann::json Prometheus::Get(const std::string& path) const {
  return nlohmann::json::parse(HttpGet(address_, path), nullptr, false);
}

std::string Prometheus::Value(const std::string& expression) const {
  const auto answer = Get("/api/v1/query?query=" + expression);
  if (!answer.is_object() || answer["data"]["result"].empty()) return "";
  return answer["data"]["result"][0]["value"][1];
}

std::string Prometheus::Firing(const std::string& alert, const std::string& label) const {
  const auto answer = Get("/api/v1/alerts");
  if (!answer.is_object()) return "";
  for (const auto& one : answer["data"]["alerts"]) {
    if (one["labels"]["alertname"] == alert && one["state"] == "firing")
      return one["labels"].value(label, "");
  }
  return "";
}

v1::Finding AlertFinding(const std::string& fingerprint, v1::Level level, const std::string& run) {
  v1::Finding f;
  f.set_fingerprint(fingerprint);
  f.set_rule("causality/moe-future-leak");
  f.set_level(level);
  f.set_strength(v1::STRENGTH_PROVED);
  f.set_title("capacity drops depend on later tokens");
  f.set_explanation("Token 17 lost its place to token 903.");
  f.set_fix("Drop by position.");
  f.mutable_cause()->set_id("drop-by-score");
  f.mutable_cause()->set_confidence(1);
  f.mutable_site()->set_run(run);
  f.mutable_site()->set_layer("layers.3");
  f.mutable_site()->set_op("routing");
  for (uint32_t r = 0; r < 8; ++r) f.mutable_site()->add_ranks(r);
  return f;
}

v1::IncidentUpdate AlertUpdate(const std::string& fingerprint, v1::IncidentUpdate::Action action) {
  v1::IncidentUpdate update;
  update.set_fingerprint(fingerprint);
  update.set_action(action);
  update.set_who("ann");
  update.set_reason("known");
  if (action == v1::IncidentUpdate::ACTION_SILENCE) update.set_until_step(1000000);
  return update;
}

}  // namespace plumbline::test
