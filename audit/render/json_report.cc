#include "audit/render/json_report.h"

#include <nlohmann/json.hpp>

#include "audit/render/text_util.h"
#include "audit/version.h"

namespace plumbline::audit {
namespace {

using Json = nlohmann::ordered_json;

Json Text(std::string_view text) { return ValidUtf8(text); }

Json FromInput(const InputReport& input) {
  Json problems = Json::array();
  for (const Problem& problem : input.problems) problems.push_back(Text(input.Line(problem)));
  return {{"path", Text(input.path)},
          {"format", Text(input.format)},
          {"bytes", input.bytes},
          {"records", input.records},
          {"problems", problems}};
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
    json["findings"].push_back(FindingValue(*finding));
  json["verdicts"] = Json::array();
  for (const v1::Verdict* verdict : result.report.verdicts())
    json["verdicts"].push_back(VerdictValue(*verdict));
  json["coverage"] = {{"judged", result.coverage.judged},
                      {"inconclusive", result.coverage.inconclusive},
                      {"dropped", result.coverage.dropped}};
  return TerminalSafeJson(json.dump(2)) + "\n";
}

}  // namespace plumbline::audit
