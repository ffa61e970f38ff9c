#include "rules/words/page_json.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/frame/frame.h"
#include "base/printable.h"
#include "rules/words/false_alarm.h"
#include "rules/words/in_short.h"
#include "rules/words/words.h"

namespace plumbline::rules {
namespace {

Json Text(std::string_view text) { return ValidUtf8(text); }

Json ValueJson(const google::protobuf::Value& value, int most);

// Sorted by key, because a protobuf map has no order.
Json Fields(const google::protobuf::Struct& fields, int most) {
  std::map<std::string, const google::protobuf::Value*> sorted;
  for (const auto& [key, value] : fields.fields()) sorted[ValidUtf8(key)] = &value;
  Json object = Json::object();
  for (const auto& [key, value] : sorted) object[key] = ValueJson(*value, most);
  return object;
}

Json ValueJson(const google::protobuf::Value& value, int most) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue:
      return NumberJson(value.number_value());
    case google::protobuf::Value::kStringValue:
      return Text(value.string_value());
    case google::protobuf::Value::kBoolValue:
      return value.bool_value();
    case google::protobuf::Value::kStructValue:
      return Fields(value.struct_value(), most);
    case google::protobuf::Value::kListValue: {
      Json list = Json::array();
      const int count = std::min(value.list_value().values_size(), most);
      for (int i = 0; i < count; ++i) list.push_back(ValueJson(value.list_value().values(i), most));
      return list;
    }
    default:
      return nullptr;
  }
}

Json SiteJson(const v1::FindingSite& site) {
  Json json = {
      {"run", Text(site.run())}, {"step_first", site.step_first()}, {"step_last", site.step_last()},
      {"ranks", RankText(site)}, {"rank_count", site.ranks_size()}, {"layer", Text(site.layer())},
      {"op", Text(site.op())}};
  if (!site.file().empty()) {
    json["file"] = Text(site.file());
    json["line"] = site.line();
  }
  return json;
}

void AddNumbers(const v1::Finding& finding, Json* json) {
  if (finding.has_measured()) {
    (*json)["measured"] = {{"name", Text(finding.measured().name())},
                           {"value", NumberJson(finding.measured().value())},
                           {"unit", Text(finding.measured().unit())}};
  }
  if (finding.has_threshold()) {
    (*json)["threshold"] = {{"value", NumberJson(finding.threshold().value())},
                            {"source", Text(finding.threshold().source())}};
  }
  if (finding.has_bias()) {
    (*json)["bias"] = {{"mean", NumberJson(finding.bias().mean())},
                       {"low", NumberJson(finding.bias().low())},
                       {"high", NumberJson(finding.bias().high())},
                       {"unit", Text(finding.bias().unit())}};
  }
  if (finding.has_false_alarm()) {
    (*json)["false_alarm"] = {{"kind", Text(finding.false_alarm().kind())},
                              {"value", NumberJson(finding.false_alarm().value())},
                              {"text", Text(FalseAlarmText(finding))}};
  }
  if (finding.lost_rank_seconds() > 0) {
    (*json)["lost"] = {{"rank_seconds", NumberJson(finding.lost_rank_seconds())},
                       {"on_gpus", finding.lost_on_gpus()},
                       {"text", LostText(finding.lost_rank_seconds(), finding.lost_on_gpus())}};
  }
  if (finding.has_forecast()) (*json)["forecast"] = StructJson(finding.forecast(), kMostElements);
}

Json CommandsJson(const InShort& in_short, const char* label) {
  Json commands = Json::array();
  for (const FixCommand& one : in_short.commands) {
    Json& json = commands.emplace_back(Json{{label, Text(one.where)}, {"command", Text(one.text)}});
    if (const std::string fill = PlaceholdersIn(one.text); !fill.empty()) json["fill"] = Text(fill);
  }
  return commands;
}

}  // namespace

Json NumberJson(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == std::floor(value) && std::fabs(value) < 9007199254740992.0) {
    return static_cast<int64_t>(value);
  }
  return value;
}

Json StructJson(const google::protobuf::Struct& fields, int most) { return Fields(fields, most); }

Json PageFinding(const v1::Finding& finding) {
  Json json = {{"rule", Text(finding.rule())},
               {"level", analysis::LevelName(finding.level())},
               {"strength", StrengthName(finding.strength())},
               {"how_sure", Text(HowSureText(finding))},
               {"title", Text(finding.title())},
               {"explanation", Text(finding.explanation())},
               {"cause",
                {{"id", Text(finding.cause().id())},
                 {"confidence", NumberJson(finding.cause().confidence())}}},
               {"site", SiteJson(finding.site())},
               {"sample_size", finding.sample_size()}};
  AddNumbers(finding, &json);
  json["assumptions"] = Json::array();
  for (const std::string& one : finding.assumptions()) json["assumptions"].push_back(Text(one));
  json["witness"] = StructJson(finding.witness(), kMostElements);
  json["fix"] = Text(finding.fix());
  json["details"] = StructJson(finding.details(), kMostElements);
  json["fingerprint"] = Text(finding.fingerprint());
  json["suppressed"] = finding.suppressed();
  const InShort in_short = ShortOf(finding);
  json["act"] = Text(in_short.act);
  json["commands"] = CommandsJson(in_short, "where");
  return json;
}

Json PageRow(const v1::Finding& finding) {
  const InShort in_short = ShortOf(finding);
  return {{"run", Text(finding.site().run())},
          {"rule", Text(finding.rule())},
          {"level", analysis::LevelName(finding.level())},
          {"strength", StrengthName(finding.strength())},
          {"suppressed", finding.suppressed()},
          {"title", Text(finding.title())},
          {"title_short", Text(in_short.title)},
          {"act", Text(in_short.act)},
          {"act_short", Text(in_short.act_short)},
          {"command", Text(in_short.command())},
          {"fill", Text(PlaceholdersIn(in_short.command()))},
          {"where", Text(in_short.where)},
          {"step_first", finding.site().step_first()},
          {"step_last", finding.site().step_last()}};
}

Json FixesJson(const v1::Finding& finding) { return CommandsJson(ShortOf(finding), "label"); }

}  // namespace plumbline::rules
