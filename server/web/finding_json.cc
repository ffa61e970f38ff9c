#include "server/web/finding_json.h"

#include <algorithm>

#include "analysis/frame/frame.h"
#include "rules/words/words.h"

namespace plumbline::server {

std::string NsText(int64_t unix_ns) { return std::to_string(unix_ns); }

const char* StandingOf(const IncidentTable::Change& change) {
  const v1::Incident::State state = change.incident.state();
  const bool aside = change.incident.finding().suppressed() && state == v1::Incident::STATE_OPEN;
  return aside ? "suppressed" : rules::StateName(state);
}

Json IncidentRow(const IncidentTable::Change& change) {
  const v1::Finding& finding = change.incident.finding();
  const v1::IncidentStatus& status = change.status;
  Json row = rules::PageRow(finding);
  row["fingerprint"] = status.fingerprint();
  row["state"] = rules::StateName(change.incident.state());
  row["step_last"] = std::max(finding.site().step_last(), status.seen_step());
  row["opened"] = NsText(change.incident.opened_unix_ns());
  row["updated"] = NsText(change.incident.updated_unix_ns());
  row["count"] = change.incident.count();
  row["sites"] = status.site_count();
  row["revision"] = status.revision();
  row["who"] = status.who();
  row["reason"] = status.reason();
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
    Json& json = sites.emplace_back();
    json = {{"fingerprint", site.fingerprint()},
            {"layer", site.layer()},
            {"op", site.op()},
            {"level", analysis::LevelName(site.level())},
            {"strength", rules::StrengthName(site.strength())},
            {"step_first", site.step_first()},
            {"step_last", site.step_last()},
            {"ranks", site.ranks()},
            {"count", site.count()},
            {"suppressed", site.suppressed()}};
    if (site.file().empty()) continue;
    json["file"] = site.file();
    json["line"] = site.line();
  }
  return sites;
}

}  // namespace plumbline::server
