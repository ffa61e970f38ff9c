#include "server/incidents/incident_book.h"

#include <algorithm>

#include "rules/catalogue.h"

namespace plumbline::server {

bool IncidentFilter::Matches(const v1::Finding& finding) const {
  return (run.empty() || run == finding.site().run()) && finding.level() >= min_level &&
         (rule_glob.empty() || rules::GlobMatch(rule_glob, finding.rule()));
}

void IncidentBook::SetOnChange(std::function<void()> on_change) {
  std::lock_guard lock(mutex_);
  on_change_ = std::move(on_change);
}

void IncidentBook::Put(const v1::Finding& finding, uint64_t count) {
  const int64_t now = unix_ns_();
  std::function<void()> notify;
  {
    std::lock_guard lock(mutex_);
    Entry& entry = by_fingerprint_[finding.fingerprint()];
    ++position_;
    if (entry.revision == 0) {
      entry.opened_at = position_;
      entry.incident.set_id(by_fingerprint_.size());
      entry.incident.set_state(v1::Incident::STATE_OPEN);
      entry.incident.set_opened_unix_ns(now);
      ++open_by_run_[finding.site().run()];
    } else {
      by_change_.erase(entry.changed_at);
    }
    *entry.incident.mutable_finding() = finding;
    entry.incident.set_count(count);
    entry.incident.set_updated_unix_ns(now);
    entry.changed_at = position_;
    ++entry.revision;
    by_change_[position_] = &entry;
    notify = on_change_;
  }
  if (notify) notify();
}

uint64_t IncidentBook::position() const {
  std::lock_guard lock(mutex_);
  return position_;
}

bool IncidentBook::Next(const IncidentFilter& filter, uint64_t* cursor, Change* out) const {
  std::lock_guard lock(mutex_);
  for (auto it = by_change_.upper_bound(*cursor); it != by_change_.end(); ++it) {
    const Entry& entry = *it->second;
    if (!filter.Matches(entry.incident.finding())) continue;
    *cursor = it->first;
    out->incident = entry.incident;
    out->opened_at = entry.opened_at;
    out->revision = entry.revision;
    return true;
  }
  *cursor = position_;
  return false;
}

std::vector<v1::Incident> IncidentBook::List(const IncidentFilter& filter) const {
  std::vector<v1::Incident> list;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [fingerprint, entry] : by_fingerprint_) {
      if (filter.Matches(entry.incident.finding())) list.push_back(entry.incident);
    }
  }
  std::sort(list.begin(), list.end(),
            [](const v1::Incident& a, const v1::Incident& b) { return a.id() < b.id(); });
  return list;
}

uint64_t IncidentBook::OpenIn(const std::string& run) const {
  std::lock_guard lock(mutex_);
  const auto found = open_by_run_.find(run);
  return found == open_by_run_.end() ? 0 : found->second;
}

}  // namespace plumbline::server
