#include "audit/render/json_report.h"

#include <nlohmann/json.hpp>

#include "audit/render/bottleneck.h"
#include "audit/render/finding_text.h"
#include "audit/render/text_util.h"
#include "base/version/build_version.h"
#include "rules/engine/incidents.h"

namespace plumbline::audit {
namespace {

using Json = nlohmann::ordered_json;

Json Text(std::string_view text) { return ValidUtf8(text); }

// Returns the role and the number of points of each series.
Json FromSeries(const std::vector<SeriesSeen>& series, const SeriesRoles& roles) {
  Json list = Json::array();
  for (const SeriesSeen& one : series) {
    list.push_back(
        {{"name", Text(one.name)}, {"role", NameOf(roles.Of(one.name))}, {"points", one.points}});
  }
  return list;
}

Json FromInput(const InputReport& input, const SeriesRoles& roles) {
  Json problems = Json::array();
  for (const Problem& problem : input.problems) problems.push_back(Text(input.Line(problem)));
  Json json = {{"path", Text(input.path)},
               {"format", Text(input.format)},
               {"bytes", input.bytes},
               {"records", input.records},
               {"problems", problems}};
  for (const std::string& note : input.notes) json["notes"].push_back(Text(note));
  if (!input.series.empty()) json["series"] = FromSeries(input.series, roles);
  return json;
}

// Returns an incident. The fingerprint of the finding that represents it comes first. The incidents
// that are its symptoms are within it.
Json FromIncident(const rules::Incident& incident) {
  const v1::Finding& shown = incident.shown();
  Json findings = Json::array();
  for (const v1::Finding* finding : incident.findings)
    findings.push_back(Text(finding->fingerprint()));
  Json json = {{"fingerprint", Text(incident.fingerprint)},
               {"rule", Text(shown.rule())},
               {"cause", Text(shown.cause().id())},
               {"level", LevelName(shown.level())},
               {"title", Text(shown.title())},
               {"sites", incident.findings.size()},
               {"findings", findings}};
  for (const rules::Incident& symptom : incident.symptoms)
    json["symptoms"].push_back(FromIncident(symptom));
  return json;
}

// Returns the largest bottleneck, and the next one.
Json FromBottlenecks(const std::vector<timeline::Bottleneck>& bottlenecks) {
  Json json = {{"line", timeline::BottleneckLine(bottlenecks)},
               {"paid", std::string(bottlenecks[0].id)},
               {"share", bottlenecks[0].share}};
  if (bottlenecks.size() > 1) {
    json["next"] = std::string(bottlenecks[1].id);
    json["next_share"] = bottlenecks[1].share;
  }
  return json;
}

}  // namespace

std::string RenderJson(const AuditResult& result) {
  Json json;
  json["schema"] = "plumbline.report/1";
  json["tool_version"] = BuildVersion();
  json["inputs"] = Json::array();
  for (const InputReport& input : result.inputs)
    json["inputs"].push_back(FromInput(input, result.roles));
  json["findings"] = Json::array();
  const Selection::Result chosen = result.selection.Of(result.report.findings());
  for (const v1::Finding* finding : chosen.shown)
    json["findings"].push_back(FindingValue(*finding));
  json["incidents"] = Json::array();
  for (const rules::Incident& incident : rules::IncidentsOf(chosen.shown))
    json["incidents"].push_back(FromIncident(incident));
  json["verdicts"] = Json::array();
  for (const v1::Verdict* verdict : result.report.verdicts())
    json["verdicts"].push_back(VerdictValue(*verdict));
  json["coverage"] = {{"judged", result.coverage.judged},
                      {"inconclusive", result.coverage.inconclusive},
                      {"dropped", result.coverage.dropped}};
  if (const auto bottlenecks = BottlenecksOf(result); !bottlenecks.empty()) {
    json["bottleneck"] = FromBottlenecks(bottlenecks);
    json["toll"] = json["bottleneck"];  // former name, for one version
  }
  if (result.selection.baseline || result.selection.since) {
    json["left_out"] = {{"baseline", chosen.known}, {"since", chosen.before}};
  }
  return TerminalSafeJson(json.dump(2)) + "\n";
}

}  // namespace plumbline::audit
