#include "server/alerts/notification.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "base/printable.h"
#include "rules/words/words.h"
#include "server/settings/alert_config.h"

namespace plumbline::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostText = 4000;         // bytes of one sentence that came from outside
constexpr size_t kMostWitness = 64 << 10;  // bytes
constexpr size_t kMostRanks = 64;          // listed by number; their count is always given
constexpr size_t kMostRanges = 8;
constexpr int kMostListed = 20;  // incidents in a summary, sites of an incident

constexpr const char* kEvents[] = {"opened",   "escalated", "returned", "reopened",
                                   "resolved", "moved",     "summary",  "test"};

std::string Cut(std::string text) {
  if (text.size() <= kMostText) return text;
  size_t end = kMostText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}
std::string Safe(const std::string& text) { return Cut(Printable(text)); }

// Returns a number as reports write it: NaN and infinities are strings.
Json Number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

std::string ShortNumber(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// Returns "0-3, 7".
std::string RankText(const v1::FindingSite& site) {
  std::vector<uint32_t> ranks(site.ranks().begin(), site.ranks().end());
  std::sort(ranks.begin(), ranks.end());
  std::string out;
  size_t ranges = 0;
  for (size_t i = 0; i < ranks.size();) {
    size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] <= ranks[j] + 1) ++j;
    if (++ranges > kMostRanges) return out + ", ...";
    absl::StrAppend(&out, i == 0 ? "" : ", ", ranks[i]);
    if (ranks[j] != ranks[i]) absl::StrAppend(&out, "-", ranks[j]);
    i = j + 1;
  }
  return out;
}

std::string StepText(const v1::FindingSite& site) {
  if (site.step_first() == site.step_last()) return absl::StrCat("step ", site.step_first());
  return absl::StrCat("steps ", site.step_first(), " to ", site.step_last());
}

std::string SiteText(const v1::FindingSite& site) {
  std::string out = absl::StrCat("run ", Safe(site.run()), ", ", StepText(site));
  if (!site.layer().empty()) absl::StrAppend(&out, ", ", Safe(site.layer()));
  if (!site.op().empty()) absl::StrAppend(&out, ", ", Safe(site.op()));
  const int ranks = site.ranks_size();
  if (ranks == 1) absl::StrAppend(&out, ", rank ", site.ranks(0));
  if (ranks > 1) absl::StrAppend(&out, ", ", ranks, " ranks (", RankText(site), ")");
  return out;
}

// Returns the other sites of the same cause: the first ones, and how many there are.
std::string SitesText(const v1::IncidentStatus& incident) {
  if (incident.site_count() < 2) return "";
  std::string out = absl::StrCat(incident.site_count(), " sites: ");
  const int listed = std::min(incident.sites_size(), kMostListed);
  for (int i = 0; i < listed; ++i) {
    const v1::IncidentSite& site = incident.sites(i);
    const bool both = !site.layer().empty() && !site.op().empty();
    absl::StrAppend(&out, i == 0 ? "" : "; ", Safe(site.layer()), both ? " " : "", Safe(site.op()));
  }
  const uint64_t rest = incident.site_count() - static_cast<uint64_t>(listed);
  return rest == 0 ? out : absl::StrCat(out, "; and ", rest, " more");
}

Json SitesJson(const v1::IncidentStatus& incident) {
  Json list = Json::array();
  for (const v1::IncidentSite& site : incident.sites()) {
    if (list.size() == static_cast<size_t>(kMostListed)) break;
    list.push_back({{"fingerprint", Safe(site.fingerprint())},
                    {"layer", Safe(site.layer())},
                    {"op", Safe(site.op())},
                    {"level", analysis::LevelName(site.level())},
                    {"strength", rules::StrengthName(site.strength())},
                    {"step_first", site.step_first()},
                    {"step_last", site.step_last()},
                    {"rank_count", site.ranks()},
                    {"count", site.count()}});
  }
  return list;
}

// Returns the identity of an alert that was sent before, for receivers that hold alerts.
Json EndedJson(const std::string& body) {
  const Json reported = Json::parse(body, nullptr, false);
  if (!reported.is_object()) return Json();
  const Json finding = reported.value("finding", Json::object());
  const Json site = finding.value("site", Json::object());
  const Json incident = reported.value("incident", Json::object());
  return {{"fingerprint", incident.value("fingerprint", "")},
          {"level", finding.value("level", "")},
          {"layer", site.value("layer", "")},
          {"op", site.value("op", "")}};
}

Json SiteJson(const v1::FindingSite& site) {
  std::vector<uint32_t> ranks(site.ranks().begin(), site.ranks().end());
  ranks.resize(std::min(ranks.size(), kMostRanks));
  return {{"run", Safe(site.run())},         {"step_first", site.step_first()},
          {"step_last", site.step_last()},   {"layer", Safe(site.layer())},
          {"op", Safe(site.op())},           {"ranks", ranks},
          {"rank_count", site.ranks_size()}, {"rank_text", RankText(site)}};
}

Json FindingJson(const v1::Finding& f) {
  Json out = {{"rule", Safe(f.rule())},
              {"level", analysis::LevelName(f.level())},
              {"strength", rules::StrengthName(f.strength())},
              {"title", Safe(f.title())},
              {"explanation", Safe(f.explanation())},
              {"site", SiteJson(f.site())},
              {"fix", Safe(f.fix())}};
  if (f.has_cause() && !f.cause().id().empty()) {
    out["cause"] = {{"id", Safe(f.cause().id())}, {"confidence", Number(f.cause().confidence())}};
  }
  if (f.has_measured()) {
    out["measured"] = {{"name", Safe(f.measured().name())},
                       {"value", Number(f.measured().value())},
                       {"unit", Safe(f.measured().unit())}};
  }
  if (f.has_threshold()) {
    out["threshold"] = {{"value", Number(f.threshold().value())},
                        {"source", Safe(f.threshold().source())}};
  }
  return out;
}

Json FieldsJson(const google::protobuf::Struct& fields);

Json ValueJson(const google::protobuf::Value& value) {
  if (value.has_number_value()) return Number(value.number_value());
  if (value.has_string_value()) return Safe(value.string_value());
  if (value.has_bool_value()) return value.bool_value();
  if (value.has_struct_value()) return FieldsJson(value.struct_value());
  Json list = Json::array();
  for (const auto& one : value.list_value().values()) list.push_back(ValueJson(one));
  return list;
}

Json FieldsJson(const google::protobuf::Struct& fields) {
  Json out = Json::object();
  for (const auto& [name, value] : std::map(fields.fields().begin(), fields.fields().end()))
    out[Safe(name)] = ValueJson(value);
  return out;
}

// Only the witness contains ids. If ids may not be sent, or if it is too long, the witness is not
// sent.
Json WitnessJson(const v1::Finding& f) {
  return f.witness().ByteSizeLong() > kMostWitness ? Json::object() : FieldsJson(f.witness());
}

// Returns the incident's fingerprint; from a server without incidents by cause, the finding's.
const std::string& FingerprintOf(const IncidentTable::Change& change) {
  const std::string& own = change.status.fingerprint();
  return own.empty() ? change.incident.finding().fingerprint() : own;
}

// Returns commands to investigate further. The fingerprint and the rule's id are ours, so they need
// no quoting.
std::vector<std::string> Checks(const IncidentTable::Change& change) {
  return {"plumb query incident " + Safe(FingerprintOf(change)),
          "plumb explain " + Safe(change.incident.finding().rule())};
}

std::string Link(const std::string& page, const std::string& fingerprint) {
  if (page.empty()) return "";
  return absl::StrCat(page, page.back() == '/' ? "" : "/", "#incident/", Printable(fingerprint));
}

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string Headline(AlertEvent event, const v1::Finding& f) {
  return absl::StrCat(
      "[", event == AlertEvent::kResolved ? "RESOLVED" : Upper(analysis::LevelName(f.level())),
      "] ", Safe(f.rule()), ": ", Safe(f.title()));
}

std::string What(AlertEvent event, const IncidentTable::Change& change, v1::Level previous,
                 int64_t quiet_from) {
  const std::string reason = Safe(change.status.reason());
  switch (event) {
    case AlertEvent::kEscalated:
      return absl::StrCat("Was ", analysis::LevelName(previous), " before.\n");
    case AlertEvent::kReturned:
      return "The fault was found again after the incident was resolved.\n";
    case AlertEvent::kReopened:
      return absl::StrCat("Open again", reason.empty() ? "" : " (" + reason + ")", ".\n");
    case AlertEvent::kMoved:
      return "Notified before as another incident; its cause is now known better.\n";
    case AlertEvent::kResolved:
      return absl::StrCat("Last found in step ", quiet_from,
                          ", then no more; the incident was opened at ",
                          AlertTime(change.incident.opened_unix_ns()), ".\n");
    default:
      return "";
  }
}

std::string Text(AlertEvent event, const IncidentTable::Change& change, v1::Level previous,
                 const std::string& link) {
  const v1::Finding& f = change.incident.finding();
  std::string out = absl::StrCat(Headline(event, f), "\n", SiteText(f.site()), "\n");
  if (const std::string sites = SitesText(change.status); !sites.empty()) out += sites + "\n";
  out += What(event, change, previous, change.status.seen_step());
  absl::StrAppend(&out, "\n", Safe(f.explanation()), "\n\n");
  absl::StrAppend(&out, "Strength: ", rules::StrengthName(f.strength()), ", found ",
                  change.incident.count() == 1 ? std::string("once")
                                               : absl::StrCat(change.incident.count(), " times"),
                  "\n");
  if (f.has_measured()) {
    absl::StrAppend(&out, "Measured: ", Safe(f.measured().name()), " ",
                    ShortNumber(f.measured().value()), " ", Safe(f.measured().unit()));
    if (f.has_threshold()) {
      absl::StrAppend(&out, " (threshold ", ShortNumber(f.threshold().value()), ", ",
                      Safe(f.threshold().source()), ")");
    }
    out += "\n";
  }
  if (!f.cause().id().empty()) {
    absl::StrAppend(&out, "Probable cause: ", Safe(f.cause().id()), " (confidence ",
                    ShortNumber(f.cause().confidence()), ")\n");
  }
  if (!f.fix().empty()) absl::StrAppend(&out, "Fix: ", Safe(f.fix()), "\n");
  out += "Check:";
  for (const std::string& check : Checks(change)) absl::StrAppend(&out, "\n  ", check);
  out += "\n";
  if (!link.empty()) absl::StrAppend(&out, "Page: ", link, "\n");
  return out;
}

Json Head(AlertEvent event, const std::string& id, const std::string& route, int64_t unix_ns) {
  return {{"schema", "plumbline.alert/1"},
          {"id", id},
          {"route", route},
          {"event", EventWord(event)},
          {"status", event == AlertEvent::kResolved ? "resolved" : "firing"},
          {"time", AlertTime(unix_ns)}};
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

const char* EventWord(AlertEvent event) { return kEvents[static_cast<size_t>(event)]; }

AlertEvent EventOf(const std::string& word) {
  for (size_t i = 0; i < std::size(kEvents); ++i) {
    if (word == kEvents[i]) return static_cast<AlertEvent>(i);
  }
  return AlertEvent::kTest;
}

std::string AlertTime(int64_t unix_ns) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[80];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
                parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>(unix_ns / 1'000'000 % 1000));
  return text;
}

Notification MakeNotification(AlertEvent event, const IncidentTable::Change& change,
                              v1::Level previous, const std::string& page, const std::string& route,
                              const std::vector<std::string>& ended, bool raw_ids) {
  const v1::Incident& incident = change.incident;
  const v1::Finding& finding = incident.finding();
  Notification n;
  n.fingerprint = FingerprintOf(change);
  n.revision = change.revision;
  n.event = event;
  n.id = absl::StrCat(Printable(n.fingerprint), "-", n.revision);
  const std::string link = Link(page, n.fingerprint);
  Json json = Head(event, n.id, route, incident.updated_unix_ns());
  json["incident"] = {{"id", incident.id()},
                      {"fingerprint", Safe(n.fingerprint)},
                      {"revision", n.revision},
                      {"state", rules::StateName(incident.state())},
                      {"count", incident.count()},
                      {"cause", Safe(change.status.cause())},
                      {"site_count", change.status.site_count()},
                      {"sites", SitesJson(change.status)},
                      {"opened", AlertTime(incident.opened_unix_ns())},
                      {"updated", AlertTime(incident.updated_unix_ns())}};
  json["finding"] = FindingJson(finding);
  if (raw_ids && finding.has_witness()) json["finding"]["witness"] = WitnessJson(finding);
  if (event == AlertEvent::kEscalated) json["previous_level"] = analysis::LevelName(previous);
  for (const std::string& body : ended) {
    if (Json one = EndedJson(body); one.is_object()) json["ended"].push_back(std::move(one));
  }
  json["check"] = Checks(change);
  if (!link.empty()) json["link"] = link;
  json["text"] = Text(event, change, previous, link);
  n.body = Dump(json);
  return n;
}

Notification MakeSummary(const std::string& id, const std::vector<Notification>& held,
                         const std::string& page, const std::string& route, int64_t unix_ns) {
  std::map<std::string, uint64_t> kinds;  // counts by "error causality/moe-future-leak opened"
  Json listed = Json::array();
  std::string lines;
  for (const Notification& n : held) {
    const Json one = Json::parse(n.body, nullptr, false);
    if (!one.is_object() || !one.contains("finding")) continue;
    const Json& finding = one["finding"];
    ++kinds[absl::StrCat(finding.value("level", ""), " ", finding.value("rule", ""), " ",
                         EventWord(n.event))];
    if (listed.size() >= static_cast<size_t>(kMostListed)) continue;
    listed.push_back({{"fingerprint", n.fingerprint},
                      {"revision", n.revision},
                      {"event", EventWord(n.event)},
                      {"level", finding.value("level", "")},
                      {"rule", finding.value("rule", "")},
                      {"title", finding.value("title", "")},
                      {"run", finding["site"].value("run", "")},
                      {"layer", finding["site"].value("layer", "")},
                      {"site_count", one["incident"].value("site_count", 1)}});
  }
  Notification n;
  n.id = id;
  n.event = AlertEvent::kSummary;
  Json json = Head(n.event, id, route, unix_ns);
  json["held_back"] = held.size();
  json["kinds"] = kinds;
  json["incidents"] = std::move(listed);
  json["check"] = {"plumb query incidents"};
  if (!page.empty()) json["link"] = page;
  std::string text = absl::StrCat(
      held.size(), " notifications were not sent: they exceed this route's limit per minute.\n");
  for (const auto& [kind, count] : kinds) absl::StrAppend(&text, "  ", count, "  ", kind, "\n");
  json["text"] = absl::StrCat(text, "Check:\n  plumb query incidents\n");
  n.body = Dump(json);
  return n;
}

Notification MakeTest(const std::string& route, int64_t unix_ns) {
  Notification n;
  n.id = absl::StrCat("test-", unix_ns);
  Json json = Head(n.event, n.id, route, unix_ns);
  json["text"] = "A test of plumbd --test-alerts: there is no fault.\n";
  n.body = Dump(json);
  return n;
}

}  // namespace plumbline::server
