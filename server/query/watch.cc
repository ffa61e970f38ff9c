#include "server/query/watch.h"

#include <algorithm>
#include <utility>

#include "server/process/grpc_status.h"

namespace plumbline::server {

Watch::Watch(const v1::WatchIncidentsRequest& request, const IncidentTable* incident_table,
             std::shared_ptr<Lease> lease, DeletedRuns deleted, std::function<void(Watch*)> on_done)
    : incident_table_(incident_table),
      lease_(std::move(lease)),
      deleted_(std::move(deleted)),
      on_done_(std::move(on_done)),
      skip_existing_(request.skip_existing()) {
  filter_.run = request.run();
  filter_.min_level = request.min_level();
  filter_.rule_glob = request.rule();
  filter_.visible = [lease = lease_, all = lease_->Everywhere(Scope::kRead),
                     gone = gone_](const std::string& run) {
    return (all || lease->Over(Scope::kRead, run)) && !gone->contains(run);
  };
  identity_ = incident_table_->identity();
  goes_on_ = request.after_position() > 0 && request.book() == identity_;
  if (goes_on_) cursor_ = began_after_ = incident_table_->CursorOf(request.after_position());
}

void Watch::Begin() {
  self_ = shared_from_this();
  lease_->OnRevoked([weak = weak_from_this()](const absl::Status& why) {
    if (auto watch = weak.lock()) watch->End(ToGrpc(why));
  });
  if (!filter_.run.empty()) {
    if (auto s = lease_->Check(Scope::kRead, filter_.run); !s.ok()) return End(ToGrpc(s));
  }
  const MutexLock lock(mutex_);
  snapshot_ = incident_table_->position();
  if (skip_existing_ && !goes_on_) cursor_ = snapshot_;
  Pump();
}

void Watch::Wake() {
  const MutexLock lock(mutex_);
  Pump();
}

void Watch::End(const grpc::Status& status) {
  const MutexLock lock(mutex_);
  if (ending_) return;
  ending_ = true;
  status_ = status;
  Pump();
}

void Watch::OnWriteDone(bool ok) {
  const MutexLock lock(mutex_);
  writing_ = false;
  if (!ok && !ending_) {
    ending_ = true;
    status_ = grpc::Status::CANCELLED;
  }
  Pump();
}

void Watch::OnDone() {
  on_done_(this);
  self_.reset();
}

void Watch::Pump() {
  if (writing_ || finished_) return;
  if (ending_) {
    finished_ = true;
    Finish(status_);
    return;
  }
  if (!FillNext()) return;
  writing_ = true;
  StartWrite(&event_);
}

// Runs are listed again only after an edit. The incident table calls the filter with its lock, so
// the filter itself must not ask the judge.
void Watch::ReadEdits() {
  const uint64_t edits = deleted_.edits();
  if (edits == edits_seen_) return;
  edits_seen_ = edits;
  *gone_ = deleted_.list();
  edited_ = true;
}

// Fills in an event of an incident that was sent, if its run was deleted or restored since.
bool Watch::FillLeft() {
  for (auto& [id, sent] : sent_) {
    const bool gone = gone_->contains(sent.run);
    if (sent.resolved || sent.left == gone) continue;
    sent.left = gone;
    const auto change = incident_table_->Get(sent.fingerprint);
    if (!change.ok() || (!gone && change->incident.state() == v1::Incident::STATE_RESOLVED))
      continue;
    event_.Clear();
    event_.set_kind(gone ? v1::IncidentEvent::KIND_LEFT : v1::IncidentEvent::KIND_OPENED);
    *event_.mutable_incident() = change->incident;
    *event_.mutable_status() = change->status;
    sent.revision = std::max(sent.revision, change->revision);
    return true;
  }
  edited_ = false;
  return false;
}

bool Watch::FillNext() {
  IncidentTable::Change change;
  for (;;) {
    ReadEdits();
    if (edited_ && caught_up_ && FillLeft()) break;
    if (!caught_up_ && cursor_ >= snapshot_) {
      caught_up_ = true;
      event_.Clear();
      event_.set_kind(v1::IncidentEvent::KIND_CAUGHT_UP);
      break;
    }
    if (incident_table_->Next(filter_, &cursor_, &change)) {
      if (FillChange(change)) break;
    } else if (caught_up_) {
      return false;  // otherwise the cursor is at the end now
    }
  }
  event_.set_position(cursor_);
  event_.set_book(identity_);
  return true;
}

// Fills in the event. Returns false if the change does not concern this watcher.
bool Watch::FillChange(const IncidentTable::Change& change) {
  const bool merged = !change.status.merged_into().empty();
  const bool resolved = change.incident.state() == v1::Incident::STATE_RESOLVED;
  const bool existed = change.opened_at <= snapshot_;
  auto [sent, first] = sent_.try_emplace(change.incident.id());
  const Sent before = std::exchange(
      sent->second, {change.revision, resolved, false, change.incident.finding().site().run(),
                     change.status.fingerprint()});
  // Resolved before the watch began.
  if (first && resolved && existed && !goes_on_ && !caught_up_) return false;
  // The incident opened and was merged in between, so its findings are reported with the incident
  // that has them now.
  if (first && merged && !(goes_on_ && change.opened_at <= began_after_)) return false;
  event_.Clear();
  *event_.mutable_incident() = change.incident;
  *event_.mutable_status() = change.status;
  if (!first) event_.set_missed(change.revision - before.revision - 1);
  if (resolved) {
    event_.set_kind(merged ? v1::IncidentEvent::KIND_MERGED : v1::IncidentEvent::KIND_RESOLVED);
  } else if (!first) {
    event_.set_kind(before.resolved ? v1::IncidentEvent::KIND_OPENED
                                    : v1::IncidentEvent::KIND_UPDATED);
  } else if (goes_on_ ? change.opened_at > began_after_ : !existed) {
    event_.set_kind(v1::IncidentEvent::KIND_OPENED);
    event_.set_missed(change.revision - 1);
  } else {
    event_.set_kind(skip_existing_ || goes_on_ ? v1::IncidentEvent::KIND_UPDATED
                                               : v1::IncidentEvent::KIND_EXISTING);
  }
  return true;
}

}  // namespace plumbline::server
