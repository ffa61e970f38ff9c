#include "rules/engine/incidents.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/frame/frame.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {
namespace {

uint32_t FirstRank(const v1::FindingSite& site) {
  return site.ranks().empty() ? 0 : *std::min_element(site.ranks().begin(), site.ranks().end());
}

auto ShowKey(const v1::Finding& f) {
  return std::make_tuple(f.suppressed(), -static_cast<int>(f.level()),
                         -static_cast<int>(f.strength()), f.site().step_first(),
                         FirstRank(f.site()), -f.cause().confidence(),
                         std::string_view(f.site().layer()), std::string_view(f.site().op()),
                         std::string_view(f.fingerprint()));
}

auto ReportKey(const v1::Finding& f) {
  return std::make_tuple(-static_cast<int>(f.level()), -static_cast<int>(f.strength()),
                         std::string_view(f.rule()), std::string_view(f.site().run()),
                         std::string_view(f.cause().id()));
}

}  // namespace

std::string IncidentFingerprint(const v1::Finding& finding) {
  return HashFields({finding.rule(), finding.site().run(), finding.cause().id()});
}

bool ShowsBefore(const v1::Finding& a, const v1::Finding& b) { return ShowKey(a) < ShowKey(b); }

std::vector<Incident> IncidentsOf(const std::vector<const v1::Finding*>& findings) {
  std::map<std::string, Incident> by_fingerprint;
  for (const v1::Finding* finding : findings)
    by_fingerprint[IncidentFingerprint(*finding)].findings.push_back(finding);
  std::vector<Incident> list;
  for (auto& [fingerprint, incident] : by_fingerprint) {
    incident.fingerprint = fingerprint;
    std::sort(incident.findings.begin(), incident.findings.end(),
              [](const auto* a, const auto* b) { return ShowsBefore(*a, *b); });
    list.push_back(std::move(incident));
  }
  std::sort(list.begin(), list.end(), [](const Incident& a, const Incident& b) {
    return ReportKey(a.shown()) < ReportKey(b.shown());
  });
  return list;
}

}  // namespace plumbline::rules
