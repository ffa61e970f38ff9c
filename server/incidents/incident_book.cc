#include "server/incidents/incident_book.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rules/catalogue.h"

namespace plumbline::server {
namespace {

constexpr size_t kShortestPrefix = 4;

std::string NewIdentity() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

bool Stronger(const v1::Finding& a, const v1::Finding& b) {
  return a.level() > b.level() || a.strength() > b.strength();
}

// Steps come from outside and may be the last that there is: "silent for ever".
int64_t After(int64_t step, int64_t steps) {
  return step > INT64_MAX - steps ? INT64_MAX : step + steps;
}

bool Open(const v1::Incident& incident) {
  return incident.state() != v1::Incident::STATE_RESOLVED && !incident.finding().suppressed();
}

}  // namespace

bool IncidentFilter::Matches(const v1::Finding& finding) const {
  return (run.empty() || run == finding.site().run()) && finding.level() >= min_level &&
         (rule_glob.empty() || rules::GlobMatch(rule_glob, finding.rule())) &&
         finding.fingerprint().rfind(fingerprint, 0) == 0 &&
         (visible == nullptr || visible(finding.site().run()));
}

IncidentBook::IncidentBook(std::function<int64_t()> unix_ns, int64_t quiet_steps)
    : unix_ns_(std::move(unix_ns)), quiet_steps_(quiet_steps), identity_(NewIdentity()) {}

int IncidentBook::Subscribe(std::function<void()> on_change) {
  std::lock_guard lock(mutex_);
  on_change_.emplace(next_subscription_, std::move(on_change));
  return next_subscription_++;
}

void IncidentBook::Unsubscribe(int subscription) {
  std::lock_guard lock(mutex_);
  on_change_.erase(subscription);
}

void IncidentBook::SetOnRevision(OnRevision on_revision) {
  std::lock_guard lock(mutex_);
  on_revision_ = std::move(on_revision);
}

IncidentBook::Told IncidentBook::ToldNow() const {
  Told told{{}, on_revision_, {}};
  for (const auto& [number, on_change] : on_change_) told.on_change.push_back(on_change);
  return told;
}

void IncidentBook::Tell(const Told& told) {
  if (told.on_revision) {
    for (const auto& [fingerprint, revision] : told.revisions)
      told.on_revision(fingerprint, revision);
  }
  for (const auto& on_change : told.on_change) on_change();
}

void IncidentBook::Touch(Entry* entry, int64_t now) {
  ++position_;
  if (entry->changed_at != 0) by_change_.erase(entry->changed_at);
  entry->changed_at = position_;
  entry->status.set_revision(entry->status.revision() + 1);
  entry->incident.set_updated_unix_ns(now);
  by_change_[position_] = entry;
}

void IncidentBook::Say(const Entry& entry, Revision::Change change, const std::string& who,
                       const std::string& reason, Told* told) const {
  auto& [fingerprint, revision] = told->revisions.emplace_back();
  fingerprint = entry.incident.finding().fingerprint();
  revision.set_revision(entry.status.revision());
  revision.set_change(change);
  revision.set_state(entry.incident.state());
  revision.set_level(entry.incident.finding().level());
  revision.set_count(entry.incident.count());
  revision.set_step(entry.status.seen_step());
  revision.set_unix_ns(entry.incident.updated_unix_ns());
  revision.set_who(who);
  revision.set_reason(reason);
}

void IncidentBook::SetState(Entry* entry, v1::Incident::State state) {
  entry->incident.set_state(state);
  if (state == v1::Incident::STATE_SILENCED) return;
  entry->status.clear_silenced_until_step();
  entry->status.clear_silenced_until_unix_ns();
}

int64_t IncidentBook::DueOf(const Entry& entry) const {
  if (entry.incident.state() == v1::Incident::STATE_RESOLVED) return INT64_MAX;
  int64_t due = After(entry.status.seen_step(), quiet_steps_ + 1);
  if (entry.status.has_silenced_until_step())
    due = std::min<int64_t>(due, After(entry.status.silenced_until_step(), 1));
  return due;
}

void IncidentBook::Put(const v1::Finding& finding, uint64_t count) {
  const int64_t now = unix_ns_();
  Told told;
  {
    std::lock_guard lock(mutex_);
    told = ToldNow();
    Run& run = runs_[finding.site().run()];
    Entry& entry = by_fingerprint_[finding.fingerprint()];
    const bool fresh = entry.changed_at == 0;
    const bool returned = !fresh && entry.incident.state() == v1::Incident::STATE_RESOLVED;
    const bool stronger = !fresh && Stronger(finding, entry.incident.finding());
    Touch(&entry, now);
    if (fresh) {
      entry.opened_at = position_;
      entry.incident.set_id(by_fingerprint_.size());
      entry.incident.set_opened_unix_ns(now);
      run.entries.push_back(&entry);
    }
    *entry.incident.mutable_finding() = finding;
    entry.incident.set_count(count);
    entry.status.set_seen_step(finding.site().step_last());
    const bool acknowledged = entry.incident.state() == v1::Incident::STATE_ACKNOWLEDGED;
    if (returned || (stronger && acknowledged)) SetState(&entry, v1::Incident::STATE_OPEN);
    if (fresh || returned || stronger) {
      Say(entry,
          fresh      ? Revision::CHANGE_OPENED
          : returned ? Revision::CHANGE_RETURNED
                     : Revision::CHANGE_STRONGER,
          "", "", &told);
    }
    run.due = std::min(run.due, DueOf(entry));
  }
  Tell(told);
}

void IncidentBook::StepClosed(const std::string& name, int64_t step) {
  Told told;
  {
    std::lock_guard lock(mutex_);
    const auto found = runs_.find(name);
    if (found == runs_.end()) return;
    found->second.closed_step = step;
    if (step < found->second.due) return;
    told = ToldNow();
    bool changed = false;
    Run& run = found->second;
    run.due = INT64_MAX;
    for (Entry* entry : run.entries) {
      changed |= ByItself(entry, step, &told);
      run.due = std::min(run.due, DueOf(*entry));
    }
    if (!changed) return;
  }
  Tell(told);
}

bool IncidentBook::ByItself(Entry* entry, int64_t step, Told* told) {
  if (step < DueOf(*entry)) return false;
  Touch(entry, unix_ns_());
  if (step > After(entry->status.seen_step(), quiet_steps_)) {
    SetState(entry, v1::Incident::STATE_RESOLVED);
    Say(*entry, Revision::CHANGE_RESOLVED, "plumbd",
        absl::StrCat("not found again for ", quiet_steps_, " steps"), told);
  } else {
    SetState(entry, v1::Incident::STATE_OPEN);
    Say(*entry, Revision::CHANGE_REOPENED, "plumbd", "the silence is over", told);
  }
  return true;
}

absl::Status CheckUpdate(const v1::IncidentUpdate& update) {
  if (update.who().empty() || update.reason().empty())
    return absl::InvalidArgumentError("an update of an incident says who and why");
  switch (update.action()) {
    case v1::IncidentUpdate::ACTION_ACKNOWLEDGE:
    case v1::IncidentUpdate::ACTION_REOPEN:
      return absl::OkStatus();
    case v1::IncidentUpdate::ACTION_SILENCE:
      if (update.has_until_step() || update.has_until_unix_ns()) return absl::OkStatus();
      return absl::InvalidArgumentError("a silence ends: at a step or at a time");
    default:
      return absl::InvalidArgumentError("expected to acknowledge, silence or open again");
  }
}

absl::Status IncidentBook::Apply(const v1::IncidentUpdate& update) {
  if (auto s = CheckUpdate(update); !s.ok()) return s;
  const int64_t now = unix_ns_();
  Told told;
  {
    std::lock_guard lock(mutex_);
    const auto found = by_fingerprint_.find(update.fingerprint());
    if (found == by_fingerprint_.end())
      return absl::NotFoundError(absl::StrCat("no incident ", update.fingerprint()));
    Entry& entry = found->second;
    told = ToldNow();
    Touch(&entry, now);
    entry.status.set_who(update.who());
    entry.status.set_reason(update.reason());
    Revision::Change change = Revision::CHANGE_REOPENED;
    if (update.action() == v1::IncidentUpdate::ACTION_ACKNOWLEDGE) {
      SetState(&entry, v1::Incident::STATE_ACKNOWLEDGED);
      change = Revision::CHANGE_ACKNOWLEDGED;
    } else if (update.action() == v1::IncidentUpdate::ACTION_SILENCE) {
      SetState(&entry, v1::Incident::STATE_SILENCED);
      change = Revision::CHANGE_SILENCED;
      entry.status.clear_silenced_until_step();
      entry.status.clear_silenced_until_unix_ns();
      if (update.has_until_step()) entry.status.set_silenced_until_step(update.until_step());
      if (update.has_until_unix_ns())
        entry.status.set_silenced_until_unix_ns(update.until_unix_ns());
    } else {
      SetState(&entry, v1::Incident::STATE_OPEN);
    }
    Say(entry, change, update.who(), update.reason(), &told);
    Run& run = runs_[entry.incident.finding().site().run()];
    run.due = std::min(run.due, DueOf(entry));
  }
  Tell(told);
  return absl::OkStatus();
}

std::vector<v1::IncidentUpdate> IncidentBook::SilencesOver(int64_t unix_ns) const {
  std::vector<v1::IncidentUpdate> over;
  std::lock_guard lock(mutex_);
  for (const auto& [position, entry] : by_change_) {
    if (entry->incident.state() != v1::Incident::STATE_SILENCED ||
        !entry->status.has_silenced_until_unix_ns() ||
        entry->status.silenced_until_unix_ns() > unix_ns) {
      continue;
    }
    v1::IncidentUpdate& update = over.emplace_back();
    update.set_fingerprint(entry->incident.finding().fingerprint());
    update.set_action(v1::IncidentUpdate::ACTION_REOPEN);
    update.set_who("plumbd");
    update.set_reason("the silence is over");
  }
  return over;
}

absl::StatusOr<std::string> IncidentBook::Resolve(const std::string& prefix,
                                                  const Visible& visible) const {
  if (prefix.size() < kShortestPrefix)
    return absl::InvalidArgumentError(absl::StrCat("expected at least ", kShortestPrefix,
                                                   " digits of a fingerprint, found \"", prefix,
                                                   "\" (plumb query incidents shows them)"));
  std::lock_guard lock(mutex_);
  std::string whole;
  for (const auto& [fingerprint, entry] : by_fingerprint_) {
    if (fingerprint.rfind(prefix, 0) != 0) continue;
    if (visible != nullptr && !visible(entry.incident.finding().site().run())) continue;
    if (!whole.empty())
      return absl::InvalidArgumentError(
          absl::StrCat("several incidents begin with ", prefix, ": give more digits"));
    whole = fingerprint;
  }
  if (whole.empty())
    return absl::NotFoundError(
        absl::StrCat("no incident ", prefix, " (plumb query incidents lists them)"));
  return whole;
}

absl::StatusOr<IncidentBook::Change> IncidentBook::Get(const std::string& fingerprint) const {
  std::lock_guard lock(mutex_);
  const auto found = by_fingerprint_.find(fingerprint);
  if (found == by_fingerprint_.end())
    return absl::NotFoundError(absl::StrCat("no incident ", fingerprint));
  const Entry& entry = found->second;
  const auto run = runs_.find(entry.incident.finding().site().run());
  return Change{entry.incident, entry.status, entry.opened_at, entry.status.revision(),
                run == runs_.end() ? INT64_MIN : run->second.closed_step};
}

uint64_t IncidentBook::position() const {
  std::lock_guard lock(mutex_);
  return position_;
}

void IncidentBook::SetIdentity(std::string identity) {
  std::lock_guard lock(mutex_);
  identity_ = std::move(identity);
}

void IncidentBook::SetQuietSteps(int64_t steps) {
  std::lock_guard lock(mutex_);
  quiet_steps_ = steps;
}

std::string IncidentBook::identity() const {
  std::lock_guard lock(mutex_);
  return identity_;
}

bool IncidentBook::Next(const IncidentFilter& filter, uint64_t* cursor, Change* out) const {
  std::lock_guard lock(mutex_);
  for (auto it = by_change_.upper_bound(*cursor); it != by_change_.end(); ++it) {
    const Entry& entry = *it->second;
    if (!filter.Matches(entry.incident.finding())) continue;
    *cursor = it->first;
    *out = {entry.incident, entry.status, entry.opened_at, entry.status.revision(), INT64_MIN};
    return true;
  }
  *cursor = std::max(*cursor, position_);
  return false;
}

std::vector<IncidentBook::Change> IncidentBook::List(const IncidentFilter& filter) const {
  std::vector<Change> list;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [fingerprint, entry] : by_fingerprint_) {
      if (filter.Matches(entry.incident.finding()))
        list.push_back(
            {entry.incident, entry.status, entry.opened_at, entry.status.revision(), INT64_MIN});
    }
  }
  std::sort(list.begin(), list.end(),
            [](const Change& a, const Change& b) { return a.incident.id() < b.incident.id(); });
  return list;
}

uint64_t IncidentBook::OpenIn(const std::string& run) const {
  std::lock_guard lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return 0;
  const auto& entries = found->second.entries;
  return static_cast<uint64_t>(std::count_if(
      entries.begin(), entries.end(), [](const Entry* entry) { return Open(entry->incident); }));
}

std::map<std::pair<std::string, v1::Level>, uint64_t> IncidentBook::OpenByRule() const {
  std::map<std::pair<std::string, v1::Level>, uint64_t> out;
  std::lock_guard lock(mutex_);
  for (const auto& [fingerprint, entry] : by_fingerprint_) {
    if (Open(entry.incident))
      ++out[{entry.incident.finding().rule(), entry.incident.finding().level()}];
  }
  return out;
}

v1::IncidentBookState IncidentBook::Checkpoint() const {
  v1::IncidentBookState state;
  std::lock_guard lock(mutex_);
  state.set_book(identity_);
  state.set_position(position_);
  std::vector<const Entry*> entries;
  for (const auto& [fingerprint, entry] : by_fingerprint_) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->incident.id() < b->incident.id(); });
  for (const Entry* entry : entries) {
    v1::IncidentState* out = state.add_incidents();
    *out->mutable_incident() = entry->incident;
    *out->mutable_status() = entry->status;
    out->set_opened_at(entry->opened_at);
    out->set_changed_at(entry->changed_at);
  }
  return state;
}

void IncidentBook::Restore(const v1::IncidentBookState& state) {
  std::lock_guard lock(mutex_);
  identity_ = state.book();
  position_ = state.position();
  for (const v1::IncidentState& in : state.incidents()) {
    Entry& entry = by_fingerprint_[in.incident().finding().fingerprint()];
    entry = {in.incident(), in.status(), in.opened_at(), in.changed_at()};
    by_change_[entry.changed_at] = &entry;
    Run& run = runs_[in.incident().finding().site().run()];
    run.entries.push_back(&entry);
    run.due = std::min(run.due, DueOf(entry));
  }
}

}  // namespace plumbline::server
