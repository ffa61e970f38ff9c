#include "server/web/finding_json.h"

#include <cmath>
#include <map>

#include "server/web/what_to_do.h"

namespace plumbline::server {
namespace {

Json ValueJson(const google::protobuf::Value& value);

// Sorted by key: a protobuf map has no order of its own.
Json StructJson(const google::protobuf::Struct& fields) {
  std::map<std::string, const google::protobuf::Value*> sorted;
  for (const auto& [key, value] : fields.fields()) sorted[key] = &value;
  Json object = Json::object();
  for (const auto& [key, value] : sorted) object[key] = ValueJson(*value);
  return object;
}

Json ValueJson(const google::protobuf::Value& value) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue:
      return NumberJson(value.number_value());
    case google::protobuf::Value::kStringValue:
      return value.string_value();
    case google::protobuf::Value::kBoolValue:
      return value.bool_value();
    case google::protobuf::Value::kStructValue:
      return StructJson(value.struct_value());
    case google::protobuf::Value::kListValue: {
      Json list = Json::array();
      const int most = std::min(value.list_value().values_size(), kMostElements);
      for (int i = 0; i < most; ++i) list.push_back(ValueJson(value.list_value().values(i)));
      return list;
    }
    default:
      return nullptr;
  }
}

const char* StrengthWord(v1::Strength strength) {
  switch (strength) {
    case v1::STRENGTH_HEURISTIC:
      return "heuristic";
    case v1::STRENGTH_STATISTICAL:
      return "statistical";
    case v1::STRENGTH_BOUNDED:
      return "bounded";
    case v1::STRENGTH_PROVED:
      return "proved";
    default:
      return "unspecified";
  }
}

Json SiteJson(const v1::FindingSite& site) {
  return {
      {"run", site.run()},       {"step_first", site.step_first()}, {"step_last", site.step_last()},
      {"ranks", RankText(site)}, {"rank_count", site.ranks_size()}, {"layer", site.layer()},
      {"op", site.op()}};
}

void AddNumbers(const v1::Finding& finding, Json* json) {
  if (finding.has_measured()) {
    (*json)["measured"] = {{"name", finding.measured().name()},
                           {"value", NumberJson(finding.measured().value())},
                           {"unit", finding.measured().unit()}};
  }
  if (finding.has_threshold()) {
    (*json)["threshold"] = {{"value", NumberJson(finding.threshold().value())},
                            {"source", finding.threshold().source()}};
  }
  if (finding.has_bias()) {
    (*json)["bias"] = {{"mean", NumberJson(finding.bias().mean())},
                       {"low", NumberJson(finding.bias().low())},
                       {"high", NumberJson(finding.bias().high())},
                       {"unit", finding.bias().unit()}};
  }
  if (finding.has_false_alarm()) {
    (*json)["false_alarm"] = {{"kind", finding.false_alarm().kind()},
                              {"value", NumberJson(finding.false_alarm().value())}};
  }
  if (finding.has_forecast()) (*json)["forecast"] = StructJson(finding.forecast());
}

}  // namespace

const char* LevelWord(v1::Level level) {
  switch (level) {
    case v1::LEVEL_ERROR:
      return "error";
    case v1::LEVEL_WARNING:
      return "warning";
    default:
      return "note";
  }
}

const char* StateWord(v1::Incident::State state) {
  switch (state) {
    case v1::Incident::STATE_ACKNOWLEDGED:
      return "acknowledged";
    case v1::Incident::STATE_SILENCED:
      return "silenced";
    case v1::Incident::STATE_RESOLVED:
      return "resolved";
    default:
      return "open";
  }
}

Json NumberJson(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == std::floor(value) && std::fabs(value) < 9007199254740992.0) {
    return static_cast<int64_t>(value);
  }
  return value;
}

std::string NsText(int64_t unix_ns) { return std::to_string(unix_ns); }

Json FindingJson(const v1::Finding& finding) {
  Json json = {
      {"rule", finding.rule()},
      {"level", LevelWord(finding.level())},
      {"strength", StrengthWord(finding.strength())},
      {"title", finding.title()},
      {"explanation", finding.explanation()},
      {"cause",
       {{"id", finding.cause().id()}, {"confidence", NumberJson(finding.cause().confidence())}}},
      {"site", SiteJson(finding.site())},
      {"sample_size", finding.sample_size()}};
  AddNumbers(finding, &json);
  json["assumptions"] = Json::array();
  for (const std::string& one : finding.assumptions()) json["assumptions"].push_back(one);
  json["witness"] = StructJson(finding.witness());
  json["fix"] = finding.fix();
  json["details"] = StructJson(finding.details());
  json["fingerprint"] = finding.fingerprint();
  json["suppressed"] = finding.suppressed();
  const InShort in_short = ShortOf(finding);
  json["act"] = in_short.act;
  json["commands"] = Json::array();
  for (const FixCommand& one : in_short.commands) {
    json["commands"].push_back({{"where", one.where}, {"command", one.text}});
  }
  return json;
}

Json IncidentRow(const IncidentTable::Change& change) {
  const v1::Finding& finding = change.incident.finding();
  const v1::IncidentStatus& status = change.status;
  const InShort in_short = ShortOf(finding);
  Json row = {{"fingerprint", status.fingerprint()},
              {"number", change.incident.id()},
              {"run", finding.site().run()},
              {"rule", finding.rule()},
              {"level", LevelWord(finding.level())},
              {"strength", StrengthWord(finding.strength())},
              {"state", StateWord(change.incident.state())},
              {"suppressed", finding.suppressed()},
              {"title", finding.title()},
              {"title_short", in_short.title},
              {"act", in_short.act},
              {"command", in_short.command()},
              {"where", in_short.where},
              {"step_first", finding.site().step_first()},
              {"step_last", std::max(finding.site().step_last(), status.seen_step())},
              {"opened", NsText(change.incident.opened_unix_ns())},
              {"updated", NsText(change.incident.updated_unix_ns())},
              {"count", change.incident.count()},
              {"sites", status.site_count()},
              {"revision", status.revision()},
              {"who", status.who()},
              {"reason", status.reason()}};
  if (status.has_silenced_until_step()) row["until_step"] = status.silenced_until_step();
  if (status.has_silenced_until_unix_ns()) {
    row["until_time"] = NsText(status.silenced_until_unix_ns());
  }
  if (!status.merged_into().empty()) row["merged_into"] = status.merged_into();
  return row;
}

Json SitesJson(const v1::IncidentStatus& status) {
  Json sites = Json::array();
  for (const v1::IncidentSite& site : status.sites()) {
    sites.push_back({{"fingerprint", site.fingerprint()},
                     {"layer", site.layer()},
                     {"op", site.op()},
                     {"level", LevelWord(site.level())},
                     {"strength", StrengthWord(site.strength())},
                     {"step_first", site.step_first()},
                     {"step_last", site.step_last()},
                     {"ranks", site.ranks()},
                     {"count", site.count()},
                     {"suppressed", site.suppressed()}});
  }
  return sites;
}

}  // namespace plumbline::server
