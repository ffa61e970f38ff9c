// Finds incidents by name.

#include <algorithm>
#include <charconv>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/incidents/incident_table.h"

namespace plumbline::server {
namespace {

constexpr size_t kShortestPrefix = 4;

bool Begins(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

bool Open(const v1::Incident& incident, const v1::Finding& shown) {
  return incident.state() != v1::Incident::STATE_RESOLVED && !shown.suppressed();
}

// Parses "#12"; returns 0 if it is not a number.
uint64_t NumberOf(const std::string& name) {
  uint64_t number = 0;
  const char* const end = name.data() + name.size();
  if (name.empty() || name[0] != '#') return 0;
  const auto [rest, error] = std::from_chars(name.data() + 1, end, number);
  return error == std::errc() && rest == end ? number : 0;
}

absl::Status Unknown(const std::string& name) {
  return absl::NotFoundError(
      absl::StrCat("no incident ", name, " (plumb query incidents lists them)"));
}

}  // namespace

absl::StatusOr<std::string> IncidentTable::Resolve(const std::string& name,
                                                   const Visible& visible) const {
  const MutexLock lock(mutex_);
  const auto hidden = [&](const Entry& entry) {
    return visible != nullptr && !visible(entry.shown().site().run());
  };
  if (const uint64_t number = NumberOf(name); number > 0) {
    for (const auto& [fingerprint, entry] : by_fingerprint_) {
      if (entry.incident.id() == number && !hidden(entry)) return fingerprint;
    }
    return Unknown(name);
  }
  if (name.size() < kShortestPrefix)
    return absl::InvalidArgumentError(
        absl::StrCat("expected at least ", kShortestPrefix,
                     " digits of a fingerprint, or # and the number of "
                     "an incident, found \"",
                     name, "\" (plumb query incidents shows them)"));
  std::set<std::string> meant;
  for (const auto& [fingerprint, entry] : by_fingerprint_) {
    if (Begins(fingerprint, name) && !hidden(entry)) meant.insert(fingerprint);
  }
  for (const auto& [fingerprint, member] : members_) {
    if (Begins(fingerprint, name) && !hidden(*member.entry))
      meant.insert(member.entry->status.fingerprint());
  }
  if (meant.empty()) return Unknown(name);
  if (meant.size() > 1)
    return absl::InvalidArgumentError(
        absl::StrCat("several incidents begin with ", name, ": give more digits"));
  return *meant.begin();
}

absl::StatusOr<v1::Finding> IncidentTable::FindingOf(const std::string& name,
                                                     const Visible& visible) const {
  const auto incident = Resolve(name, visible);
  if (!incident.ok()) return incident.status();
  const MutexLock lock(mutex_);
  const auto found = by_fingerprint_.find(*incident);
  if (found == by_fingerprint_.end()) return Unknown(name);
  const Entry& entry = found->second;
  const Member* const named = Begins(*incident, name) ? nullptr : Named(entry, name);
  return named == nullptr ? entry.shown() : named->finding;
}

// Returns the only member whose fingerprint begins with `prefix`; null if there is none or several.
const IncidentTable::Member* IncidentTable::Named(const Entry& entry, const std::string& prefix) {
  const Member* only = nullptr;
  for (const Member* member : entry.members) {
    if (!Begins(member->finding.fingerprint(), prefix)) continue;
    if (only != nullptr) return nullptr;
    only = member;
  }
  return only;
}

// Returns the incident that an update is for: by the incident's fingerprint, by that of an incident
// merged into it, or by that of a finding.
IncidentTable::Entry* IncidentTable::Meant(const std::string& fingerprint) {
  auto found = by_fingerprint_.find(fingerprint);
  if (found == by_fingerprint_.end()) {
    const auto member = members_.find(fingerprint);
    return member == members_.end() ? nullptr : member->second.entry;
  }
  // Ends, because the last incident of a chain of merges is not merged.
  while (found->second.merged()) {
    const auto into = by_fingerprint_.find(found->second.status.merged_into());
    if (into == by_fingerprint_.end()) break;
    found = into;
  }
  return &found->second;
}

absl::StatusOr<IncidentTable::Change> IncidentTable::Get(const std::string& fingerprint) const {
  const MutexLock lock(mutex_);
  const auto found = by_fingerprint_.find(fingerprint);
  if (found == by_fingerprint_.end())
    return absl::NotFoundError(absl::StrCat("no incident ", fingerprint));
  Change change = ChangeOf(found->second);
  const auto run = runs_.find(found->second.shown().site().run());
  if (run != runs_.end()) change.closed_step = run->second.closed_step;
  return change;
}

std::string IncidentTable::IncidentOf(const std::string& finding_fingerprint) const {
  const MutexLock lock(mutex_);
  const auto found = members_.find(finding_fingerprint);
  return found == members_.end() ? "" : found->second.entry->status.fingerprint();
}

IncidentTable::Change IncidentTable::ChangeOf(const Entry& entry) {
  Change change{entry.incident, StatusOf(entry), entry.opened_at, entry.status.revision(),
                INT64_MIN};
  *change.incident.mutable_finding() = entry.shown();
  return change;
}

bool IncidentTable::Next(const IncidentFilter& filter, uint64_t* cursor, Change* out) const {
  const MutexLock lock(mutex_);
  for (auto it = by_change_.upper_bound(*cursor); it != by_change_.end(); ++it) {
    const Entry& entry = *it->second;
    if (!filter.Matches(entry.shown()) || !Requested(entry, filter.fingerprint)) continue;
    *cursor = it->first;
    *out = ChangeOf(entry);
    return true;
  }
  *cursor = std::max(*cursor, position_);
  return false;
}

bool IncidentTable::Requested(const Entry& entry, const std::string& prefix) {
  if (Begins(entry.status.fingerprint(), prefix)) return true;
  return std::any_of(entry.members.begin(), entry.members.end(), [&](const Member* member) {
    return Begins(member->finding.fingerprint(), prefix);
  });
}

std::vector<IncidentTable::Change> IncidentTable::List(const IncidentFilter& filter) const {
  std::vector<Change> list;
  {
    const MutexLock lock(mutex_);
    const std::string& prefix = filter.fingerprint;
    for (const auto& [fingerprint, entry] : by_fingerprint_) {
      if (!filter.Matches(entry.shown()) || (entry.merged() && prefix.empty())) continue;
      if (!Requested(entry, prefix)) continue;
      list.push_back(ChangeOf(entry));
      const Member* const named = Begins(fingerprint, prefix) ? nullptr : Named(entry, prefix);
      if (named != nullptr) *list.back().incident.mutable_finding() = named->finding;
    }
  }
  std::sort(list.begin(), list.end(),
            [](const Change& a, const Change& b) { return a.incident.id() < b.incident.id(); });
  return list;
}

uint64_t IncidentTable::OpenIn(const std::string& run) const {
  const MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return 0;
  const auto& entries = found->second.entries;
  return static_cast<uint64_t>(
      std::count_if(entries.begin(), entries.end(),
                    [](const Entry* entry) { return Open(entry->incident, entry->shown()); }));
}

IncidentTable::RuleCounts IncidentTable::OpenByRule(
    const std::function<bool(const v1::Finding&)>& wanted) const {
  RuleCounts out;
  const MutexLock lock(mutex_);
  for (const auto& [fingerprint, entry] : by_fingerprint_) {
    const v1::Finding& shown = entry.shown();
    if (!Open(entry.incident, shown) || (wanted && !wanted(shown))) continue;
    ++out[{shown.rule(), shown.level()}];
  }
  return out;
}

}  // namespace plumbline::server
