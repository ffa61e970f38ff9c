#include "rules/engine/incidents.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/frame/frame.h"
#include "rules/analysis_names.h"
#include "rules/causes.h"

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

// Moves each symptom into its root; both keep their order.
std::vector<Incident> WithSymptoms(std::vector<Incident> all) {
  std::vector<const v1::Finding*> shown;
  for (const Incident& incident : all) shown.push_back(&incident.shown());
  const std::vector<size_t> roots = RootsOf(shown);
  std::vector<Incident> list;
  std::vector<size_t> place(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (roots[i] != i) continue;
    place[i] = list.size();
    list.push_back(std::move(all[i]));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (roots[i] != i) list[place[roots[i]]].symptoms.push_back(std::move(all[i]));
  }
  return list;
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
  return WithSymptoms(std::move(list));
}

}  // namespace plumbline::rules
