#include "server/incidents/incident_table.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rules/catalogue.h"

namespace plumbline::server {
namespace {

std::string NewIdentity() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

// Adds without overflow: steps come from outside and may be the largest number ("silent for ever").
int64_t After(int64_t step, int64_t steps) {
  return step > INT64_MAX - steps ? INT64_MAX : step + steps;
}

}  // namespace

bool IncidentFilter::Matches(const v1::Finding& finding) const {
  return (run.empty() || run == finding.site().run()) && finding.level() >= min_level &&
         (rule_glob.empty() || rules::GlobMatch(rule_glob, finding.rule())) &&
         (visible == nullptr || visible(finding.site().run()));
}

IncidentTable::IncidentTable(std::function<int64_t()> unix_ns, int64_t quiet_steps)
    : unix_ns_(std::move(unix_ns)), quiet_steps_(quiet_steps), identity_(NewIdentity()) {}

int IncidentTable::Subscribe(std::function<void()> on_change) {
  const MutexLock lock(mutex_);
  on_change_.emplace(next_subscription_, std::move(on_change));
  return next_subscription_++;
}

void IncidentTable::Wake() const {
  PendingCalls pending;
  {
    const MutexLock lock(mutex_);
    pending = CallsNow();
  }
  Make(pending);
}

void IncidentTable::Unsubscribe(int subscription) {
  const MutexLock lock(mutex_);
  on_change_.erase(subscription);
}

void IncidentTable::SetOnRevision(OnRevision on_revision) {
  const MutexLock lock(mutex_);
  on_revision_ = std::move(on_revision);
}

IncidentTable::PendingCalls IncidentTable::CallsNow() const {
  PendingCalls pending{{}, on_revision_, {}};
  for (const auto& [number, on_change] : on_change_) pending.on_change.push_back(on_change);
  return pending;
}

void IncidentTable::Make(const PendingCalls& pending) {
  if (pending.on_revision) {
    for (const auto& [fingerprint, revision] : pending.revisions)
      pending.on_revision(fingerprint, revision);
  }
  for (const auto& on_change : pending.on_change) on_change();
}

void IncidentTable::Touch(Entry* entry, int64_t now) {
  ++position_;
  if (entry->changed_at != 0) by_change_.erase(entry->changed_at);
  entry->changed_at = position_;
  entry->status.set_revision(entry->status.revision() + 1);
  entry->incident.set_updated_unix_ns(now);
  by_change_[position_] = entry;
}

void IncidentTable::Report(const Entry& entry, Revision::Change change, const std::string& who,
                           const std::string& reason, PendingCalls* pending) const {
  auto& [fingerprint, revision] = pending->revisions.emplace_back();
  fingerprint = entry.status.fingerprint();
  revision.set_revision(entry.status.revision());
  revision.set_change(change);
  revision.set_state(entry.incident.state());
  revision.set_level(entry.shown().level());
  revision.set_count(entry.incident.count());
  revision.set_site_count(entry.members.size());
  revision.set_step(entry.status.seen_step());
  revision.set_unix_ns(entry.incident.updated_unix_ns());
  revision.set_who(who);
  revision.set_reason(reason);
}

void IncidentTable::SetState(Entry* entry, v1::Incident::State state) {
  entry->incident.set_state(state);
  if (state == v1::Incident::STATE_SILENCED) return;
  entry->status.clear_silenced_until_step();
  entry->status.clear_silenced_until_unix_ns();
}

// Returns the steps after which an incident is resolved. If the incident is sampled only every few
// steps, two samples must not show it.
int64_t IncidentTable::QuietOf(const Entry& entry) const {
  return std::max(quiet_steps_, 2 * entry.status.steps_apart());
}

int64_t IncidentTable::DueOf(const Entry& entry) const {
  if (entry.over()) return INT64_MAX;
  int64_t due = After(entry.status.seen_step(), QuietOf(entry) + 1);
  if (entry.status.has_silenced_until_step())
    due = std::min<int64_t>(due, After(entry.status.silenced_until_step(), 1));
  return due;
}

void IncidentTable::StepClosed(const std::string& name, int64_t step) {
  PendingCalls pending;
  {
    const MutexLock lock(mutex_);
    const auto found = runs_.find(name);
    if (found == runs_.end()) return;
    found->second.closed_step = step;
    if (step < found->second.due) return;
    pending = CallsNow();
    bool changed = false;
    Run& run = found->second;
    run.due = INT64_MAX;
    for (Entry* entry : run.entries) {
      changed |= ByItself(entry, step, &pending);
      run.due = std::min(run.due, DueOf(*entry));
    }
    if (!changed) return;
  }
  Make(pending);
}

bool IncidentTable::ByItself(Entry* entry, int64_t step, PendingCalls* pending) {
  if (step < DueOf(*entry)) return false;
  Touch(entry, unix_ns_());
  if (step > After(entry->status.seen_step(), QuietOf(*entry))) {
    SetState(entry, v1::Incident::STATE_RESOLVED);
    Report(*entry, Revision::CHANGE_RESOLVED, "plumbd",
           absl::StrCat("not found again for ", QuietOf(*entry), " steps"), pending);
  } else {
    SetState(entry, v1::Incident::STATE_OPEN);
    Report(*entry, Revision::CHANGE_REOPENED, "plumbd", "the silence has ended", pending);
  }
  return true;
}

void IncidentTable::Continued(const std::string& name, const std::string& rule,
                              const std::string& why) {
  ResolveEach(
      name, [&](const Entry& entry) { return entry.shown().rule() == rule; }, why);
}

void IncidentTable::RunForgotten(const std::string& run) {
  ResolveEach(
      run, [](const Entry&) { return true; },
      "its run is over, and the server keeps only a limited number of ended runs");
}

void IncidentTable::Forget(const std::string& name) {
  const MutexLock lock(mutex_);
  const auto run = runs_.find(name);
  if (run == runs_.end()) return;
  for (Entry* entry : run->second.entries) {
    for (const Member* member : entry->members)
      members_.erase(members_.find(std::string(member->finding.fingerprint())));
    by_change_.erase(entry->changed_at);
    by_fingerprint_.erase(by_fingerprint_.find(std::string(entry->status.fingerprint())));
  }
  runs_.erase(run);
}

void IncidentTable::ResolveEach(const std::string& name,
                                const std::function<bool(const Entry&)>& which,
                                const std::string& why) {
  PendingCalls pending;
  {
    const MutexLock lock(mutex_);
    const auto run = runs_.find(name);
    if (run == runs_.end()) return;
    pending = CallsNow();
    bool changed = false;
    for (Entry* entry : run->second.entries) {
      if (entry->over() || !which(*entry)) continue;
      Touch(entry, unix_ns_());
      SetState(entry, v1::Incident::STATE_RESOLVED);
      Report(*entry, Revision::CHANGE_RESOLVED, "plumbd", why, &pending);
      changed = true;
    }
    if (!changed) return;
  }
  Make(pending);
}

absl::Status CheckUpdate(const v1::IncidentUpdate& update) {
  if (update.who().empty() || update.reason().empty())
    return absl::InvalidArgumentError("an update of an incident needs a name and a reason");
  switch (update.action()) {
    case v1::IncidentUpdate::ACTION_ACKNOWLEDGE:
    case v1::IncidentUpdate::ACTION_REOPEN:
      return absl::OkStatus();
    case v1::IncidentUpdate::ACTION_SILENCE:
      if (update.has_until_step() || update.has_until_unix_ns()) return absl::OkStatus();
      return absl::InvalidArgumentError("a silence needs an end: a step or a time");
    default:
      return absl::InvalidArgumentError("expected one of acknowledge, silence and reopen");
  }
}

absl::Status IncidentTable::Apply(const v1::IncidentUpdate& update) {
  const bool stop = update.action() == v1::IncidentUpdate::ACTION_STOP;
  if (auto s = CheckUpdate(update); !stop && !s.ok()) return s;
  const int64_t now = unix_ns_();
  PendingCalls pending;
  {
    const MutexLock lock(mutex_);
    Entry* const meant = Meant(update.fingerprint());
    if (meant == nullptr)
      return absl::NotFoundError(absl::StrCat("no incident ", update.fingerprint()));
    Entry& entry = *meant;
    pending = CallsNow();
    Touch(&entry, now);
    if (!stop) {
      entry.status.set_who(update.who());
      entry.status.set_reason(update.reason());
    }
    Revision::Change change = Revision::CHANGE_REOPENED;
    if (stop) {  // the state of this incident does not change
      change = Revision::CHANGE_STOPPED;
    } else if (update.action() == v1::IncidentUpdate::ACTION_ACKNOWLEDGE) {
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
    Report(entry, change, update.who(), update.reason(), &pending);
    Run& run = runs_[entry.shown().site().run()];
    run.due = std::min(run.due, DueOf(entry));
  }
  Make(pending);
  return absl::OkStatus();
}

std::vector<v1::IncidentUpdate> IncidentTable::SilencesOver(int64_t unix_ns) const {
  std::vector<v1::IncidentUpdate> over;
  const MutexLock lock(mutex_);
  for (const auto& [position, entry] : by_change_) {
    if (entry->incident.state() != v1::Incident::STATE_SILENCED ||
        !entry->status.has_silenced_until_unix_ns() ||
        entry->status.silenced_until_unix_ns() > unix_ns) {
      continue;
    }
    v1::IncidentUpdate& update = over.emplace_back();
    update.set_fingerprint(entry->status.fingerprint());
    update.set_action(v1::IncidentUpdate::ACTION_REOPEN);
    update.set_who("plumbd");
    update.set_reason("the silence has ended");
  }
  return over;
}

uint64_t IncidentTable::position() const {
  const MutexLock lock(mutex_);
  return position_;
}

void IncidentTable::CameInAnotherOrder(uint64_t sure) {
  const MutexLock lock(mutex_);
  sure_ = sure;
  sure_again_ = position_;
}

uint64_t IncidentTable::CursorOf(uint64_t position) const {
  const MutexLock lock(mutex_);
  return position > sure_ && position <= sure_again_ ? sure_ : position;
}

void IncidentTable::SetIdentity(std::string identity) {
  const MutexLock lock(mutex_);
  identity_ = std::move(identity);
}

void IncidentTable::SetQuietSteps(int64_t steps) {
  const MutexLock lock(mutex_);
  quiet_steps_ = steps;
}

std::string IncidentTable::identity() const {
  const MutexLock lock(mutex_);
  return identity_;
}

}  // namespace plumbline::server
