#include "server/judge/run_retry.h"

#include <utility>

namespace plumbline::server {

RunRetry::RunRetry(std::string run, uint64_t judged, uint64_t newest, const OpenRun& open)
    : run_(std::move(run)),
      judged_(judged),
      thread_([this, newest, open] { Read(open, newest); }) {}

RunRetry::~RunRetry() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void RunRetry::Read(const OpenRun& open, uint64_t newest) {
  absl::Status status;
  auto items = open(run_, newest);
  if (!items.ok()) status = items.status();
  while (status.ok()) {
    v1::ReadRunItem item;
    const auto more = (*items)(&item);
    if (!more.ok()) status = more.status();
    if (!more.ok() || !*more) break;
    if (item.has_batch() && item.entry() > judged_) continue;
    const size_t bytes = item.ByteSizeLong();
    MutexLock lock(mutex_);
    changed_.Wait(lock,
                  [&]() PLUMB_REQUIRES(mutex_) { return stopped_ || read_bytes_ <= kMostRead; });
    if (stopped_) return;
    read_bytes_ += bytes;
    read_.push_back(std::move(item));
    changed_.NotifyAll();
  }
  // If nothing of the run is stored, there is nothing to judge.
  if (absl::IsNotFound(status)) status = absl::OkStatus();
  const MutexLock lock(mutex_);
  status_ = std::move(status);
  ended_ = true;
  changed_.NotifyAll();
}

RunRetry::Next RunRetry::Take(bool wait, v1::ReadRunItem* item) {
  MutexLock lock(mutex_);
  if (wait)
    changed_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return ended_ || !read_.empty(); });
  if (read_.empty()) return ended_ ? Next::kEnd : Next::kNotYet;
  *item = std::move(read_.front());
  read_.pop_front();
  read_bytes_ -= item->ByteSizeLong();
  changed_.NotifyAll();
  return Next::kItem;
}

void RunRetry::Defer(Deferred item) {
  deferred_bytes_ +=
      512 + (item.batch != nullptr ? 2 * item.batch->ByteSizeLong() : item.event.ByteSizeLong());
  deferred_.push_back(std::move(item));
}

bool RunRetry::TakeDeferred(Deferred* item) {
  if (deferred_.empty()) return false;
  *item = std::move(deferred_.front());
  deferred_.pop_front();
  return true;
}

}  // namespace plumbline::server
