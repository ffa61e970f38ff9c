#include "audit/render/json_report.h"

#include <map>
#include <nlohmann/json.hpp>

#include "audit/render/finding_text.h"
#include "audit/render/text_util.h"
#include "audit/version.h"

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

Json FromFinding(const v1::Finding& finding) {
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

Json FromInput(const InputReport& input) {
  Json problems = Json::array();
  for (const Problem& problem : input.problems) problems.push_back(Text(input.Line(problem)));
  return {{"path", Text(input.path)},
          {"format", Text(input.format)},
          {"bytes", input.bytes},
          {"records", input.records},
          {"problems", problems}};
}

Json FromVerdict(const v1::Verdict& verdict) {
  return {{"rule", Text(verdict.rule())},
          {"site", FromSite(verdict.site())},
          {"verdict", VerdictName(verdict.kind())},
          {"reason", Text(verdict.reason())},
          {"details", FromStruct(verdict.details())}};
}

}  // namespace

std::string RenderJson(const AuditResult& result) {
  Json json;
  json["schema"] = "plumbline.report/1";
  json["tool_version"] = kVersion;
  json["inputs"] = Json::array();
  for (const InputReport& input : result.inputs) json["inputs"].push_back(FromInput(input));
  json["findings"] = Json::array();
  for (const v1::Finding* finding : result.report.findings())
    json["findings"].push_back(FromFinding(*finding));
  json["verdicts"] = Json::array();
  for (const v1::Verdict* verdict : result.report.verdicts())
    json["verdicts"].push_back(FromVerdict(*verdict));
  json["coverage"] = {{"judged", result.coverage.judged},
                      {"inconclusive", result.coverage.inconclusive},
                      {"dropped", result.coverage.dropped}};
  return json.dump(2) + "\n";
}

}  // namespace plumbline::audit
