#include "server/alerts/alertmanager_sink.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.h"
#include "server/alerts/http_client.h"

namespace plumbline::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostAPost = 256;  // alerts in one request

std::string DumpAlerts(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// Labels are an alert's identity, so none changes while an incident has the same level and the same
// representative finding. If an alert was sent with other labels, it is ended with these labels
// (`ended`).
Json AlertOf(const Json& body, const std::string& level, int64_t ends_at) {
  const Json finding = body.value("finding", Json::object());
  const Json site = finding.value("site", Json::object());
  const Json incident = body.value("incident", Json::object());
  Json alert = {{"labels",
                 {{"alertname", TextOf(finding, "rule")},
                  {"fingerprint", TextOf(incident, "fingerprint")},
                  {"level", level},
                  {"run", TextOf(site, "run")},
                  {"source", "plumbline"}}},
                {"annotations",
                 {{"summary", TextOf(finding, "title")},
                  {"description", TextOf(body, "text")},
                  {"explanation", TextOf(finding, "explanation")},
                  {"strength", TextOf(finding, "strength")},
                  {"fix", TextOf(finding, "fix")},
                  {"ranks", TextOf(site, "rank_text")},
                  {"sites", std::to_string(incident.value("site_count", uint64_t{1}))}}},
                {"startsAt", TextOf(incident, "opened")},
                {"endsAt", AlertTime(ends_at)}};
  for (const char* key : {"layer", "op"}) {
    if (const std::string text = TextOf(site, key); !text.empty()) alert["labels"][key] = text;
  }
  if (finding.contains("cause")) alert["annotations"]["cause"] = TextOf(finding["cause"], "id");
  if (const std::string link = TextOf(body, "link"); !link.empty()) alert["generatorURL"] = link;
  return alert;
}

// Returns `alert` with the labels under which it, or the incident before it, was sent.
Json EndedOf(Json alert, const Json& ended, int64_t ends_at) {
  for (const char* key : {"fingerprint", "level", "layer", "op"}) {
    alert["labels"].erase(key);
    if (const std::string text = TextOf(ended, key); !text.empty()) alert["labels"][key] = text;
  }
  alert["endsAt"] = AlertTime(ends_at);
  return alert;
}

// Returns a test alert, which ends at once.
Json TestAlert(const Json& body, int64_t ends_at) {
  return {{"labels", {{"alertname", "plumbline/test"}, {"level", "note"}, {"source", "plumbline"}}},
          {"annotations", {{"summary", "a test"}, {"description", TextOf(body, "text")}}},
          {"endsAt", AlertTime(ends_at)}};
}

class AlertmanagerSink : public AlertSink {
 public:
  AlertmanagerSink(const AlertRoute& route, UnixClock clock)
      : route_(route), clock_(std::move(clock)), http_(route, route.alertmanager) {}

  SendResult Send(const Notification& n) override {
    const Json body = Json::parse(n.body, nullptr, false);
    if (!body.is_object()) return {SendResult::Kind::kRefused, "the notification is damaged"};
    const int64_t now = clock_();
    if (n.event == AlertEvent::kTest) return Post(Json::array({TestAlert(body, now + Life())}));
    const std::string level = TextOf(body.value("finding", Json::object()), "level");
    const bool resolved = n.event == AlertEvent::kResolved;
    const Json alert = AlertOf(body, level, resolved ? now : now + Life());
    const Json before = body.value("ended", Json::array());
    Json alerts = Json::array();
    if (!resolved || before.empty()) alerts.push_back(alert);
    for (const Json& one : before) {
      Json over = EndedOf(alert, one, now);
      if (resolved || over["labels"] != alert["labels"]) alerts.push_back(std::move(over));
    }
    // The level is part of the identity (users route by it), so the earlier alert ends.
    if (n.event == AlertEvent::kEscalated && before.empty())
      alerts.push_back(AlertOf(body, TextOf(body, "previous_level"), now));
    SendResult ended = EndSilence(n.fingerprint);
    if (ended.kind != SendResult::Kind::kDelivered) return ended;
    return Post(alerts);
  }

  std::chrono::nanoseconds refresh_period() const override {
    return std::chrono::nanoseconds(static_cast<int64_t>(route_.resend_seconds * 1e9));
  }

  SendResult Refresh(const std::vector<OpenAlert>& open) override {
    Json alerts = Json::array();
    for (const OpenAlert& alert : open) {
      const Json body = Json::parse(alert.body, nullptr, false);
      if (!body.is_object()) continue;
      if (alert.quiet) {
        if (auto r = Silence(alert); r.kind != SendResult::Kind::kDelivered) return r;
      }
      const std::string level = TextOf(body.value("finding", Json::object()), "level");
      alerts.push_back(AlertOf(body, level, clock_() + Life()));
      if (alerts.size() < kMostAPost) continue;
      if (auto r = Post(std::exchange(alerts, Json::array()));
          r.kind != SendResult::Kind::kDelivered) {
        return r;
      }
    }
    return alerts.empty() ? SendResult() : Post(alerts);
  }

  void Cancel() override { http_.Cancel(); }

 private:
  int64_t Life() const { return 4 * refresh_period().count(); }

  SendResult Post(const Json& alerts) {
    return ResultOf(http_.Do("POST", "/api/v2/alerts", DumpAlerts(alerts), {}));
  }

  // Creates or extends the silence of one fingerprint.
  SendResult Silence(const OpenAlert& alert) {
    const int64_t now = clock_();
    Json silence = {{"matchers", Json::array({{{"name", "fingerprint"},
                                               {"value", Printable(alert.fingerprint)},
                                               {"isRegex", false},
                                               {"isEqual", true}}})},
                    {"startsAt", AlertTime(now)},
                    {"endsAt", AlertTime(now + Life())},
                    {"createdBy", Printable(alert.who)},
                    {"comment", Printable(alert.reason)}};
    const auto known = silences_.find(alert.fingerprint);
    if (known != silences_.end()) silence["id"] = known->second;
    HttpAnswer answer = http_.Do("POST", "/api/v2/silences", DumpAlerts(silence), {});
    if (answer.status == 404 && known != silences_.end()) {  // the server no longer has it
      silences_.erase(known);
      silence.erase("id");
      answer = http_.Do("POST", "/api/v2/silences", DumpAlerts(silence), {});
    }
    SendResult result = ResultOf(answer);
    if (result.kind != SendResult::Kind::kDelivered) return result;
    const Json stated = Json::parse(answer.body, nullptr, false);
    if (stated.is_object()) silences_[alert.fingerprint] = TextOf(stated, "silenceID");
    return result;
  }

  // Ends the silence. One that another process created ends by itself, in at most four periods.
  SendResult EndSilence(const std::string& fingerprint) {
    const auto known = silences_.find(fingerprint);
    if (known == silences_.end()) return {};
    const HttpAnswer answer = http_.Do("DELETE", "/api/v2/silence/" + known->second, "", {});
    SendResult result = ResultOf(answer);
    if (result.kind == SendResult::Kind::kTryAgain && answer.status == 0) return result;
    silences_.erase(known);  // deleted, or unknown to the server
    return {};
  }

  const AlertRoute route_;
  const UnixClock clock_;
  AlertHttpClient http_;
  std::map<std::string, std::string> silences_;  // ids by fingerprint
};

}  // namespace

std::unique_ptr<AlertSink> MakeAlertmanagerSink(const AlertRoute& route, UnixClock clock) {
  return std::make_unique<AlertmanagerSink>(route, std::move(clock));
}

}  // namespace plumbline::server
