#include "audit/render/finding_json.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "audit/render/finding_text.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

using Json = nlohmann::ordered_json;

Json Text(std::string_view text) { return ValidUtf8(text); }

Json Number(double value) {
  if (!std::isfinite(value)) return ExactNumber(value);
  if (value == std::floor(value) && std::fabs(value) < 9007199254740992.0)
    return static_cast<int64_t>(value);
  return value;
}

Json FromStruct(const google::protobuf::Struct& fields);

Json FromValue(const google::protobuf::Value& value) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue:
      return Number(value.number_value());
    case google::protobuf::Value::kStringValue:
      return Text(value.string_value());
    case google::protobuf::Value::kBoolValue:
      return value.bool_value();
    case google::protobuf::Value::kStructValue:
      return FromStruct(value.struct_value());
    case google::protobuf::Value::kListValue: {
      Json list = Json::array();
      for (const auto& element : value.list_value().values()) list.push_back(FromValue(element));
      return list;
    }
    case google::protobuf::Value::kNullValue:
    case google::protobuf::Value::KIND_NOT_SET:
      break;
  }
  return nullptr;
}

// Sorted by key: a protobuf map has no order of its own.
Json FromStruct(const google::protobuf::Struct& fields) {
  std::map<std::string, const google::protobuf::Value*> sorted;
  for (const auto& [key, value] : fields.fields()) sorted[ValidUtf8(key)] = &value;
  Json object = Json::object();
  for (const auto& [key, value] : sorted) object[key] = FromValue(*value);
  return object;
}

Json FromSite(const v1::FindingSite& site) {
  Json ranks = Json::array();
  for (const uint32_t rank : site.ranks()) ranks.push_back(rank);
  return {{"run", Text(site.run())},       {"step_first", site.step_first()},
          {"step_last", site.step_last()}, {"ranks", ranks},
          {"layer", Text(site.layer())},   {"op", Text(site.op())}};
}

}  // namespace

Json FindingValue(const v1::Finding& finding) {
  Json json;
  json["rule"] = Text(finding.rule());
  json["level"] = LevelName(finding.level());
  json["strength"] = StrengthName(finding.strength());
  json["title"] = Text(finding.title());
  json["explanation"] = Text(finding.explanation());
  json["cause"] = {{"id", Text(finding.cause().id())},
                   {"confidence", Number(finding.cause().confidence())}};
  json["site"] = FromSite(finding.site());
  json["measured"] = {{"name", Text(finding.measured().name())},
                      {"value", Number(finding.measured().value())},
                      {"unit", Text(finding.measured().unit())}};
  json["threshold"] = {{"value", Number(finding.threshold().value())},
                       {"source", Text(finding.threshold().source())}};
  if (finding.has_bias()) {
    json["bias"] = {{"mean", Number(finding.bias().mean())},
                    {"low", Number(finding.bias().low())},
                    {"high", Number(finding.bias().high())},
                    {"unit", Text(finding.bias().unit())}};
  }
  if (finding.has_forecast()) json["forecast"] = FromStruct(finding.forecast());
  json["sample_size"] = finding.sample_size();
  if (finding.has_false_alarm()) {
    json["false_alarm"] = {{"kind", Text(finding.false_alarm().kind())},
                           {"value", Number(finding.false_alarm().value())}};
  }
  json["assumptions"] = Json::array();
  for (const std::string& assumption : finding.assumptions())
    json["assumptions"].push_back(Text(assumption));
  json["witness"] = FromStruct(finding.witness());
  json["fix"] = Text(finding.fix());
  json["details"] = FromStruct(finding.details());
  json["fingerprint"] = Text(finding.fingerprint());
  json["suppressed"] = finding.suppressed();
  return json;
}

Json VerdictValue(const v1::Verdict& verdict) {
  return {{"rule", Text(verdict.rule())},
          {"site", FromSite(verdict.site())},
          {"verdict", VerdictName(verdict.kind())},
          {"reason", Text(verdict.reason())},
          {"details", FromStruct(verdict.details())}};
}

std::string FindingJson(const v1::Finding& finding) {
  return TerminalSafeJson(FindingValue(finding).dump());
}

std::string VerdictJson(const v1::Verdict& verdict) {
  return TerminalSafeJson(VerdictValue(verdict).dump());
}

}  // namespace plumbline::audit
