#include "audit/render/page_data.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "audit/render/bottleneck.h"
#include "audit/render/text_util.h"
#include "audit/render/verdict_groups.h"
#include "base/version/build_version.h"
#include "rules/catalogue.h"
#include "rules/engine/incidents.h"
#include "rules/words/in_short.h"
#include "rules/words/page_json.h"
#include "rules/words/words.h"

namespace plumbline::audit {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostIncidents = 1000, kMostSites = 500, kMostAlso = 12;
constexpr size_t kMostSeries = 100;  // each has at most about 30 KB
constexpr size_t kMostGroups = 2000;

Json Utf8(std::string_view text) { return ValidUtf8(text); }

// Returns the points in the form of the server's reduced series: minimum, maximum and a value per
// column, and the columns with non-finite values.
Json PointsJson(const CollectedSeries& series) {
  Json step = Json::array(), mean = Json::array(), low = Json::array(), high = Json::array();
  Json bad = Json::array();
  for (const SeriesBucket& bucket : series.buckets) {
    if (bucket.non_finite > 0) bad.push_back(step.size());
    step.push_back(bucket.step);
    const bool any = bucket.finite > 0;
    mean.push_back(any ? Json(bucket.last) : Json(nullptr));
    low.push_back(any ? Json(bucket.min) : Json(nullptr));
    high.push_back(any ? Json(bucket.max) : Json(nullptr));
  }
  return {{"bucket_steps", int64_t{1} << series.bucket_bits},
          {"step", std::move(step)},
          {"mean", std::move(mean)},
          {"min", std::move(low)},
          {"max", std::move(high)},
          {"bad", std::move(bad)}};
}

Json SitesJson(const rules::Incident& incident) {
  Json sites = Json::array();
  for (const v1::Finding* finding : incident.findings) {
    if (sites.size() == kMostSites) break;
    const v1::FindingSite& site = finding->site();
    sites.push_back({{"fingerprint", Utf8(finding->fingerprint())},
                     {"layer", Utf8(site.layer())},
                     {"op", Utf8(site.op())},
                     {"level", analysis::LevelName(finding->level())},
                     {"strength", rules::StrengthName(finding->strength())},
                     {"step_first", site.step_first()},
                     {"step_last", site.step_last()},
                     {"ranks", site.ranks_size()},
                     {"count", 1},
                     {"suppressed", finding->suppressed()}});
    if (site.file().empty()) continue;
    sites.back()["file"] = Utf8(site.file());
    sites.back()["line"] = site.line();
  }
  return sites;
}

// Returns the time that ranks lost by the incident; null if no rule measured it. If its own rule
// did not, it is the longest of its symptoms: they are times of the same fault, so they are not
// added.
Json LostJson(const rules::Incident& incident) {
  double lost = 0;
  bool on_gpus = true;
  for (const v1::Finding* finding : incident.findings) {
    if (!(finding->lost_rank_seconds() > 0)) continue;
    lost += finding->lost_rank_seconds();
    on_gpus &= finding->lost_on_gpus();
  }
  if (lost > 0) {
    return {{"rank_seconds", rules::NumberJson(lost)},
            {"on_gpus", on_gpus},
            {"of", "measured in the steps of the finding"}};
  }
  Json longest = nullptr;
  for (const rules::Incident& symptom : incident.symptoms) {
    Json of = LostJson(symptom);
    if (of.is_null() || (!longest.is_null() && of["rank_seconds"] <= longest["rank_seconds"]))
      continue;
    of["of"] = absl::StrCat(of["of"].get<std::string>(), " (", symptom.shown().rule(), ")");
    longest = std::move(of);
  }
  return longest;
}

// Returns the fields of the page's incident that an audit has. Times, history and capsules exist on
// a server only.
Json IncidentJson(const rules::Incident& incident, const std::vector<rules::Incident>& all) {
  const v1::Finding& shown = incident.shown();
  Json json = rules::PageRow(shown);
  json["fingerprint"] = Utf8(incident.fingerprint);
  json["number"] = 0;
  json["state"] = "open";
  json["opened"] = "";
  json["count"] = incident.findings.size();
  json["sites"] = incident.findings.size();
  json["finding"] = rules::PageFinding(shown);
  json["site_rows"] = SitesJson(incident);
  json["lost"] = LostJson(incident);
  json["history"] = Json::array();
  json["symptoms"] = Json::array();
  for (const rules::Incident& symptom : incident.symptoms) {
    Json row = rules::PageRow(symptom.shown());
    row["fingerprint"] = Utf8(symptom.fingerprint);
    json["symptoms"].push_back(std::move(row));
  }
  json["also"] = Json::array();
  for (const rules::Incident& other : all) {
    const v1::Finding& of = other.shown();
    if (&other == &incident || of.site().run() != shown.site().run()) continue;
    if (json["also"].size() == kMostAlso) break;
    json["also"].push_back({{"fingerprint", Utf8(other.fingerprint)},
                            {"rule", Utf8(of.rule())},
                            {"level", analysis::LevelName(of.level())},
                            {"title_short", Utf8(rules::ShortOf(of).title)}});
  }
  return json;
}

// Returns the series of the findings, and losses.
Json SeriesJson(const AuditResult& result, const std::vector<rules::Incident>& incidents) {
  std::set<const CollectedSeries*> spoken_of;
  for (const rules::Incident& incident : incidents) {
    const CollectedSeries* series = result.series.Find(incident.shown());
    if (series != nullptr && spoken_of.size() < kMostSeries) spoken_of.insert(series);
  }
  Json list = Json::array();
  for (const CollectedSeries& series : result.series.series()) {
    const bool loss = ReadsAsLoss(series.op);
    if (series.buckets.empty() || list.size() == kMostSeries) continue;
    if (!loss && !spoken_of.contains(&series)) continue;
    list.push_back({{"run", Utf8(series.run)},
                    {"name", Utf8(series.Name())},
                    {"loss", loss},
                    {"points", PointsJson(series)}});
  }
  return list;
}

Json InputsJson(const AuditResult& result) {
  Json list = Json::array();
  for (const InputReport& input : result.inputs) {
    Json problems = Json::array(), notes = Json::array();
    for (const Problem& problem : input.problems)
      problems.push_back(Utf8((problem.error ? "refused: " : "noted: ") + input.Line(problem)));
    for (const std::string& note : input.notes) notes.push_back(Utf8(note));
    list.push_back({{"path", Utf8(input.path)},
                    {"format", Utf8(input.format)},
                    {"bytes", input.bytes},
                    {"records", input.records},
                    {"problems", std::move(problems)},
                    {"notes", std::move(notes)}});
  }
  return list;
}

Json GroupsJson(const std::vector<VerdictGroup>& groups) {
  Json list = Json::array();
  for (const VerdictGroup& group : groups) {
    if (list.size() == kMostGroups) break;
    list.push_back({{"rule", Utf8(group.rule)},
                    {"words", Utf8(group.words)},
                    {"sites", Utf8(SitesText(group.sites))}});
  }
  return list;
}

// Returns the pages of the rules that found something.
Json RulesJson(const std::vector<rules::Incident>& incidents) {
  std::set<std::string> found;
  for (const rules::Incident& incident : incidents) found.insert(incident.shown().rule());
  Json list = Json::array();
  for (const std::string& id : found) {
    const rules::CatalogueEntry* entry = rules::FindRule(id);
    if (entry == nullptr) continue;
    list.push_back({{"rule", id},
                    {"title", std::string(entry->info->title)},
                    {"page", std::string(entry->info->page)}});
  }
  return list;
}

// Escapes the only characters that could end a script element or begin markup. The value stays the
// same.
std::string WithinScript(const std::string& json) {
  std::string out;
  out.reserve(json.size() + json.size() / 16);
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else if (c == '>') {
      out += "\\u003e";
    } else if (c == '&') {
      out += "\\u0026";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string ReportTitle(const AuditResult& result) {
  std::set<std::string> runs;
  for (const CollectedSeries& series : result.series.series()) runs.insert(series.run);
  for (const v1::Finding* finding : result.findings()) runs.insert(finding->site().run());
  runs.erase("");
  if (runs.size() == 1) return Printable(*runs.begin());
  if (!runs.empty()) return Plural(runs.size(), "run");
  return result.inputs.size() == 1 ? Printable(result.inputs[0].path) : "";
}

std::string PageData(const AuditResult& result) {
  const std::vector<rules::Incident> incidents = rules::IncidentsOf(result.findings());
  Json json;
  json["version"] = BuildVersion();
  json["title"] = Utf8(ReportTitle(result));
  json["summary"] = Utf8(SummaryText(result));
  json["left_out"] = Utf8(LeftOutText(result));
  json["bottleneck"] = BottleneckLineOf(result);
  json["notes"] = Json::array();
  for (const std::string& note : result.notes) json["notes"].push_back(Utf8(note));
  json["coverage"] = {{"judged", result.coverage.judged},
                      {"inconclusive", result.coverage.inconclusive},
                      {"dropped", result.coverage.dropped}};
  json["inputs"] = InputsJson(result);
  json["incidents"] = Json::array();
  for (const rules::Incident& incident : incidents) {
    if (json["incidents"].size() == kMostIncidents) break;
    json["incidents"].push_back(IncidentJson(incident, incidents));
  }
  json["series"] = SeriesJson(result, incidents);
  json["inconclusive"] = GroupsJson(InconclusiveGroups(result));
  json["passed"] = GroupsJson(PassedGroups(result));
  json["rules"] = RulesJson(incidents);
  return WithinScript(TerminalSafeJson(json.dump()));
}

}  // namespace plumbline::audit
