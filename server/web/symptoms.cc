#include "server/web/symptoms.h"

#include <algorithm>

#include "rules/causes.h"

namespace plumbline::server {

using Change = IncidentTable::Change;

Symptoms::Symptoms(const std::vector<Change>& all) {
  for (const bool over : {false, true}) {
    std::vector<const Change*> some;
    std::vector<const v1::Finding*> shown;
    for (const Change& change : all) {
      if ((change.incident.state() == v1::Incident::STATE_RESOLVED) != over) continue;
      if (!change.status.merged_into().empty()) continue;
      some.push_back(&change);
      shown.push_back(&change.incident.finding());
    }
    const std::vector<size_t> roots = rules::RootsOf(shown);
    for (size_t i = 0; i < some.size(); ++i) {
      if (roots[i] == i) continue;
      roots_[some[i]->status.fingerprint()] = some[roots[i]];
      symptoms_.emplace(some[roots[i]]->status.fingerprint(), some[i]);
    }
  }
}

const Change* Symptoms::RootOf(const Change& change) const {
  const auto found = roots_.find(change.status.fingerprint());
  return found == roots_.end() ? nullptr : found->second;
}

std::vector<const Change*> Symptoms::Of(const Change& root) const {
  std::vector<const Change*> out;
  const auto [from, to] = symptoms_.equal_range(root.status.fingerprint());
  for (auto it = from; it != to; ++it) out.push_back(it->second);
  std::stable_sort(out.begin(), out.end(), [](const Change* a, const Change* b) {
    return a->incident.finding().site().step_first() < b->incident.finding().site().step_first();
  });
  return out;
}

Json Symptoms::Row(const Change& root) const {
  Json row = IncidentRow(root);
  row["symptoms"] = Json::array();
  for (const Change* symptom : Of(root)) row["symptoms"].push_back(IncidentRow(*symptom));
  return row;
}

}  // namespace plumbline::server
