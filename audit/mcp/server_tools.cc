// Tools that query a server.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "audit/live/answers.h"
#include "audit/live/caught_up.h"
#include "audit/live/client.h"
#include "audit/live/known_run.h"
#include "audit/live/watch_printer.h"
#include "audit/mcp/arguments.h"
#include "audit/mcp/fit.h"
#include "audit/mcp/tools.h"
#include "audit/render/finding_json.h"
#include "audit/render/finding_text.h"
#include "rules/words/hide_ids.h"

namespace plumbline::audit::mcp {
namespace {

constexpr double kPatienceSeconds = 10;
constexpr size_t kMostRuns = 200, kMostSeries = 1000;
constexpr int64_t kIncidentsUnlessReported = 50, kMostIncidents = 500;
constexpr int64_t kCellsUnlessReported = 400;

// After a restart, a server knows less until it has judged its journal. Each answer states whether
// it has.
constexpr const char* kListRunsIn =
    R"({"type": "object", "properties": {}, "additionalProperties": false})";
constexpr const char* kListRunsOut = R"({"type": "object", "properties": {
  "runs": {"type": "array", "items": {"type": "object", "properties": {
    "run": {"type": "string"}, "state": {"type": "string"}, "newest_step": {"type": "integer"},
    "closed_step": {"type": "integer"}, "open_incidents": {"type": "integer"}, "lost": {"type": "integer"}},
    "required": ["run", "state"]}},
  "omitted": {"type": "integer", "description": "runs that are not listed"},
  "caught_up": {"type": "boolean", "description": "false: the server still judges its journal"}},
  "required": ["runs", "omitted", "caught_up"]})";

constexpr const char* kListIncidentsIn = R"({"type": "object", "properties": {
  "run": {"type": "string", "maxLength": 1024, "description": "only this run; otherwise all"},
  "rule": {"type": "string", "maxLength": 256, "description": "glob over rule ids, as causality/*"},
  "min_level": {"type": "string", "enum": ["note", "warning", "error"]},
  "limit": {"type": "integer", "minimum": 1, "maximum": 500, "description": "50 unless given"}},
  "additionalProperties": false})";
constexpr const char* kListIncidentsOut = R"({"type": "object", "properties": {
  "incidents": {"type": "array", "items": {"type": "object", "properties": {
    "fingerprint": {"type": "string"}, "finding": {"type": "string", "description": "for get_finding"},
    "state": {"type": "string"}, "rule": {"type": "string"}, "level": {"type": "string"},
    "strength": {"type": "string"}, "title": {"type": "string"}, "cause": {"type": "string"},
    "site": {"type": "string"}, "sites": {"type": "integer"}, "count": {"type": "integer"},
    "file": {"type": "string", "description": "the trainer's source that first reported the site"},
    "line": {"type": "integer"},
    "opened": {"type": "string"}, "updated": {"type": "string"}},
    "required": ["fingerprint", "finding", "rule", "level", "title"]}},
  "omitted": {"type": "integer", "description": "incidents that are not listed"},
  "caught_up": {"type": "boolean"}},
  "required": ["incidents", "omitted", "caught_up"]})";

constexpr const char* kGetFindingIn = R"({"type": "object", "properties": {
  "fingerprint": {"type": "string", "maxLength": 64,
    "description": "of a finding or an incident, or its first digits"},
  "raw_ids": {"type": "boolean", "description": "names token and sequence ids; false unless given"}},
  "required": ["fingerprint"], "additionalProperties": false})";
constexpr const char* kGetFindingOut = R"({"type": "object", "properties": {
  "incident": {"type": "object", "description": "its state and sites",
    "properties": {"fingerprint": {"type": "string"}, "state": {"type": "string"}}},
  "finding": {"type": "object", "description": "with witness, measured value, threshold, cause, fix",
    "properties": {"rule": {"type": "string"}, "level": {"type": "string"}, "title": {"type": "string"},
      "witness": {"type": "object"}, "fix": {"type": "string"}},
    "required": ["rule", "level", "title", "witness", "fix"]},
  "caught_up": {"type": "boolean"}},
  "required": ["incident", "finding", "caught_up"]})";

constexpr const char* kGetSeriesIn = R"({"type": "object", "properties": {
  "run": {"type": "string", "maxLength": 1024},
  "series": {"type": "string", "maxLength": 1024,
    "description": "glob over LAYER/OP, or OP if there is no layer; without it the series are listed"},
  "from": {"type": "integer", "description": "first step"},
  "to": {"type": "integer", "description": "last step"},
  "last": {"type": "integer", "minimum": 1, "maximum": 1000000000, "description": "number of newest steps"},
  "cells": {"type": "integer", "minimum": 1, "maximum": 4000,
    "description": "largest number of values, 400 unless given; steps are joined until they fit"},
  "over_ranks": {"type": "boolean", "description": "joined over ranks (the default), or a row each"}},
  "required": ["run"], "additionalProperties": false})";
constexpr const char* kGetSeriesOut = R"({"type": "object", "properties": {
  "names": {"type": "array", "items": {"type": "object", "properties": {"series": {"type": "string"}},
    "required": ["series"]}, "description": "the series there are, when none was asked for"},
  "series": {"type": "array", "items": {"type": "object", "properties": {
    "series": {"type": "string"}, "step": {"type": "array"}, "bucket_steps": {"type": "integer"}},
    "required": ["series", "step"]},
    "description": "rows are ranks, columns are steps; value, or mean, min, max where steps were joined"},
  "omitted": {"type": "integer", "description": "series that are not in the answer"},
  "caught_up": {"type": "boolean"}},
  "required": ["omitted", "caught_up"]})";

v1::Level LevelOf(const std::string& name) {
  if (name.empty()) return v1::LEVEL_UNSPECIFIED;
  return name == "error" ? v1::LEVEL_ERROR : name == "warning" ? v1::LEVEL_WARNING : v1::LEVEL_NOTE;
}

Json IncidentSummary(const v1::Incident& incident, const v1::IncidentStatus& status) {
  const v1::Finding& finding = incident.finding();
  const Json whole = FindingValue(rules::WithoutIds(finding));
  Json summary;
  summary["fingerprint"] = ValidUtf8(FingerprintOf(incident, status));
  summary["finding"] = whole["fingerprint"];
  summary["state"] = StateName(incident.state());
  for (const char* key : {"rule", "level", "strength", "title", "act"}) {
    if (whole.contains(key)) summary[key] = whole[key];
  }
  summary["cause"] = whole["cause"]["id"];
  summary["site"] = SiteText(finding.site());
  for (const char* key : {"file", "line"}) {
    if (whole["site"].contains(key)) summary[key] = whole["site"][key];
  }
  summary["sites"] = status.site_count();
  summary["count"] = incident.count();
  summary["opened"] = Rfc3339(incident.opened_unix_ns());
  summary["updated"] = Rfc3339(incident.updated_unix_ns());
  return summary;
}

// State shared by the tools. The client connects at the first call.
class Requested {
 public:
  explicit Requested(const std::string& server) : server_(server) {
    if (!server.empty()) client_ = std::make_unique<Client>(server);
  }

  absl::StatusOr<Json> ListRuns() {
    Json answer;
    if (absl::Status status = Begin(&answer); !status.ok()) return status;
    const auto response = client_->Runs(kPatienceSeconds);
    if (!response.ok()) return response.status();
    answer["runs"] = Json::array();
    for (const v1::RunInfo& run : response->runs())
      answer["runs"].push_back(Json::parse(RunJson(run)));
    FitList("runs", "omitted", kMostRuns, &answer);
    return answer;
  }

  absl::StatusOr<Json> ListIncidents(const Json& arguments) {
    v1::ListIncidentsRequest request;
    request.set_run(TextArgument(arguments, "run"));
    request.set_rule(TextArgument(arguments, "rule"));
    request.set_min_level(LevelOf(TextArgument(arguments, "min_level")));
    Json answer;
    const auto response = Incidents(request, &answer);
    if (!response.ok()) return response.status();
    answer["incidents"] = Json::array();
    for (int i = 0; i < response->incidents_size(); ++i)
      answer["incidents"].push_back(
          IncidentSummary(response->incidents(i), StatusAt(*response, i)));
    const int64_t limit = NumberArgument(arguments, "limit", kIncidentsUnlessReported);
    FitList("incidents", "omitted", static_cast<size_t>(std::min(limit, kMostIncidents)), &answer);
    return answer;
  }

  absl::StatusOr<Json> GetFinding(const Json& arguments) {
    v1::ListIncidentsRequest request;
    request.set_fingerprint(TextArgument(arguments, "fingerprint"));
    if (request.fingerprint().empty())
      return absl::InvalidArgumentError("fingerprint: expected at least one digit");
    Json answer;
    const auto response = Incidents(request, &answer);
    if (!response.ok()) return response.status();
    if (response->incidents_size() != 1) {
      return absl::NotFoundError(
          absl::StrCat("expected a fingerprint of one finding or incident, found one of ",
                       response->incidents_size(), "; list_incidents lists them"));
    }
    v1::Incident incident = response->incidents(0);
    if (!FlagArgument(arguments, "raw_ids", false))
      *incident.mutable_finding() = rules::WithoutIds(incident.finding());
    answer["incident"] = Json::parse(IncidentJson(incident, StatusAt(*response, 0)));
    answer["finding"] = std::move(answer["incident"]["finding"]);
    answer["incident"].erase("finding");
    if (LineOf(answer).size() <= kMostAnswerBytes) return answer;
    return absl::ResourceExhaustedError(
        "the finding is too large for an answer; plumb query --finding FINGERPRINT prints it");
  }

  absl::StatusOr<Json> GetSeries(const Json& arguments) {
    Json answer;
    if (absl::Status status = Begin(&answer); !status.ok()) return status;
    const std::string run = TextArgument(arguments, "run");
    if (auto s = QueryIfRunKnown(*client_, run, server_, kPatienceSeconds); !s.ok()) return s;
    const bool listed = TextArgument(arguments, "series").empty();
    const absl::Status status = listed ? NamesOf(run, &answer) : ValuesOf(run, arguments, &answer);
    return status.ok() ? absl::StatusOr<Json>(std::move(answer)) : status;
  }

 private:
  absl::Status Begin(Json* answer) {
    if (client_ == nullptr) {
      return absl::FailedPreconditionError(
          "no server is configured: start plumb mcp with --server HOST:PORT (explain_rule and "
          "audit_path need none)");
    }
    const auto caught_up = AwaitCaughtUp(*client_, server_, kPatienceSeconds);
    if (!caught_up.ok()) return caught_up.status();
    (*answer)["caught_up"] = *caught_up;
    return absl::OkStatus();
  }

  // Lists incidents. An empty list is an answer only if the server knows the run; otherwise returns
  // an error.
  absl::StatusOr<v1::ListIncidentsResponse> Incidents(const v1::ListIncidentsRequest& request,
                                                      Json* answer) {
    if (absl::Status status = Begin(answer); !status.ok()) return status;
    auto response = client_->Incidents(request, kPatienceSeconds);
    if (!response.ok() || !response->incidents().empty()) return response;
    if (auto s = QueryIfRunKnown(*client_, request.run(), server_, kPatienceSeconds); !s.ok())
      return s;
    return response;
  }

  static v1::IncidentStatus StatusAt(const v1::ListIncidentsResponse& response, int i) {
    return i < response.status_size() ? response.status(i) : v1::IncidentStatus();
  }

  absl::Status NamesOf(const std::string& run, Json* answer) {
    v1::ListSeriesRequest request;
    request.set_run(run);
    const auto response = client_->ListSeries(request, kPatienceSeconds);
    if (!response.ok()) return response.status();
    (*answer)["names"] = Json::array();
    for (const v1::SeriesInfo& series : response->series())
      (*answer)["names"].push_back(Json::parse(SeriesInfoJson(series)));
    FitList("names", "omitted", kMostSeries, answer);
    return absl::OkStatus();
  }

  absl::Status ValuesOf(const std::string& run, const Json& arguments, Json* answer) {
    v1::QuerySeriesRequest request;
    request.set_run(run);
    request.set_series(TextArgument(arguments, "series"));
    if (arguments.contains("from")) request.set_step_first(NumberArgument(arguments, "from", 0));
    if (arguments.contains("to")) request.set_step_last(NumberArgument(arguments, "to", 0));
    request.set_last_steps(static_cast<uint64_t>(NumberArgument(arguments, "last", 0)));
    request.set_max_cells(
        static_cast<uint64_t>(NumberArgument(arguments, "cells", kCellsUnlessReported)));
    request.set_over_ranks(FlagArgument(arguments, "over_ranks", true));
    const auto response = client_->QuerySeries(request, kPatienceSeconds);
    if (!response.ok()) return response.status();
    if (response->series().empty()) {
      return absl::NotFoundError(
          absl::StrCat("run ", run, " has no values of a series that matches ", request.series(),
                       " in these steps; without series, get_series lists them"));
    }
    (*answer)["series"] = Json::array();
    for (const v1::SeriesColumns& columns : response->series()) {
      const auto json = SeriesJson(columns);
      if (!json.ok()) return json.status();
      (*answer)["series"].push_back(Json::parse(*json));
    }
    FitList("series", "omitted", kMostSeries, answer);
    (*answer)["omitted"] = (*answer)["omitted"].get<uint64_t>() + response->omitted();
    return absl::OkStatus();
  }

  const std::string server_;
  std::unique_ptr<Client> client_;
};

}  // namespace

std::vector<Tool> ServerTools(const std::string& server) {
  const auto requested = std::make_shared<Requested>(server);
  return {
      {"list_runs", "Runs", "The runs of the server: state, ranks, steps, lost evidence",
       kListRunsIn, kListRunsOut,
       [requested](const Json&, const OnProgress&) { return requested->ListRuns(); }},
      {"list_incidents", "Incidents",
       "Incidents of the runs: one per cause, errors and warnings, with their states",
       kListIncidentsIn, kListIncidentsOut,
       [requested](const Json& arguments, const OnProgress&) {
         return requested->ListIncidents(arguments);
       }},
      {"get_finding", "One finding",
       "One finding in full: the measured value and its threshold, a witness that can be checked "
       "by hand, the probable cause, the fix",
       kGetFindingIn, kGetFindingOut,
       [requested](const Json& arguments, const OnProgress&) {
         return requested->GetFinding(arguments);
       }},
      {"get_series", "A series",
       "Values of a run's scalars (loss, gradient norm, ...) by step, downsampled; without a "
       "series, the list of series",
       kGetSeriesIn, kGetSeriesOut,
       [requested](const Json& arguments, const OnProgress&) {
         return requested->GetSeries(arguments);
       }},
  };
}

}  // namespace plumbline::audit::mcp
