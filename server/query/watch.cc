#include "server/query/watch.h"

#include <utility>

namespace plumbline::server {

Watch::Watch(const v1::WatchIncidentsRequest& request, const IncidentBook* book,
             std::function<void(Watch*)> on_done)
    : book_(book), on_done_(std::move(on_done)), skip_existing_(request.skip_existing()) {
  filter_.run = request.run();
  filter_.min_level = request.min_level();
}

void Watch::Begin() {
  self_ = shared_from_this();
  std::lock_guard lock(mutex_);
  snapshot_ = book_->position();
  if (skip_existing_) cursor_ = snapshot_;
  Pump();
}

void Watch::Wake() {
  std::lock_guard lock(mutex_);
  Pump();
}

void Watch::End(const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  if (ending_) return;
  ending_ = true;
  status_ = status;
  Pump();
}

void Watch::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
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

bool Watch::FillNext() {
  IncidentBook::Change change;
  if (!caught_up_ && cursor_ >= snapshot_) {
    caught_up_ = true;
    event_.Clear();
    event_.set_kind(v1::IncidentEvent::KIND_CAUGHT_UP);
    return true;
  }
  if (book_->Next(filter_, &cursor_, &change)) {
    FillChange(change);
    return true;
  }
  return caught_up_ ? false : FillNext();  // the cursor is at the end now
}

void Watch::FillChange(const IncidentBook::Change& change) {
  event_.Clear();
  const auto [sent, first] = sent_.try_emplace(change.incident.id(), change.revision);
  const bool existed = change.opened_at <= snapshot_;
  if (!first) {
    event_.set_kind(v1::IncidentEvent::KIND_UPDATED);
    event_.set_missed(change.revision - sent->second - 1);
    sent->second = change.revision;
  } else if (existed) {
    event_.set_kind(skip_existing_ ? v1::IncidentEvent::KIND_UPDATED
                                   : v1::IncidentEvent::KIND_EXISTING);
  } else {
    event_.set_kind(v1::IncidentEvent::KIND_OPENED);
    event_.set_missed(change.revision - 1);
  }
  *event_.mutable_incident() = change.incident;
}

}  // namespace plumbline::server
