#include "server/ingest/admission_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

// When the judge checks its runs, hundreds of places may become free at once; they are given out
// together.
constexpr std::chrono::milliseconds kPeriod{20};
constexpr int kMostWork = 10;  // a try of the whole queue takes at most a tenth of a processor

std::string KeyOf(const Sender& sender) {
  return absl::StrCat(sender.connection, " ", sender.line);
}
std::string SenderKeyOf(const Sender& sender) {
  return absl::StrCat(sender.entries, "\n", sender.address);
}

}  // namespace

AdmissionQueue::AdmissionQueue(NameTable* names, Counters* counters, std::chrono::nanoseconds still)
    : names_(names), counters_(counters), still_(still), thread_([this] { Loop(); }) {
  names_->SetOnFree([this] { OnFree(); });
}

AdmissionQueue::~AdmissionQueue() {
  names_->SetOnFree(nullptr);
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

std::optional<AdmissionQueue::Place> AdmissionQueue::Query(Request request) {
  const std::string key = KeyOf(request.sender);
  const MutexLock lock(mutex_);
  ++requesting_;  // set before the try, so that a place which becomes free during the try is
                  // noticed
  const bool full = queue_.size() >= kMost || bytes_ + request.bytes > kMostBytes;
  const bool fits = !full && MayWaitLocked(request, key);
  const bool overtakes = !full && of_senders_.Of(SenderKeyOf(request.sender)) > 0;
  Place place = names_->Connect(request.runs, request.sender,
                                overtakes ? NameTable::Take::kKnown : NameTable::Take::kAny);
  if (place.ok() || !fits) {
    --requesting_;
    if (!place.ok()) ++counters_->refused_runs;
    return place;
  }
  ++counters_->waited_hellos;
  AppendLocked(std::move(request), key, place.status());
  retry_ = retry_ || overtakes;  // this hello was not tried
  changed_.NotifyAll();
  return std::nullopt;
}

// Returns true if its connection has a place in the queue. If the call of an earlier request of
// this connection is gone, drops that request.
bool AdmissionQueue::MayWaitLocked(const Request& request, const std::string& key) {
  if (request.sender.connection.empty()) return false;
  if (const auto same = by_key_.find(key); same != by_key_.end()) {
    if (!same->second->request.call.expired()) return false;
    EraseLocked(same->second);
  }
  return of_connections_.Of(request.sender.connection) < kOfConnection;
}

void AdmissionQueue::AppendLocked(Request request, std::string key, absl::Status full) {
  bytes_ += request.bytes;
  of_connections_.Add(request.sender.connection);
  of_senders_.Add(SenderKeyOf(request.sender));
  queue_.push_back({std::move(request), std::move(key), Clock::now(), std::move(full)});
  by_key_[queue_.back().key] = std::prev(queue_.end());
}

AdmissionQueue::Queue::iterator AdmissionQueue::EraseLocked(Queue::iterator at) {
  bytes_ -= at->request.bytes;
  of_connections_.Remove(at->request.sender.connection);
  of_senders_.Remove(SenderKeyOf(at->request.sender));
  by_key_.erase(at->key);
  --requesting_;
  return queue_.erase(at);
}

void AdmissionQueue::OnFree() {
  if (requesting_ == 0) return;
  const MutexLock lock(mutex_);
  retry_ = true;
  changed_.NotifyAll();
}

// Tries each hello once, the oldest first. If the sender of the first hello has used its share,
// tries the next hello.
std::vector<AdmissionQueue::Answer> AdmissionQueue::AdmitLocked() {
  const auto begun = Clock::now();
  std::vector<Answer> answers;
  retry_ = false;
  for (auto at = queue_.begin(); at != queue_.end();) {
    if (at->request.call.expired()) {
      at = EraseLocked(at);
      continue;
    }
    Place place = names_->Connect(at->request.runs, at->request.sender);
    if (!place.ok()) {
      at++->full = place.status();
      continue;
    }
    answers.push_back({std::move(at->request.done), std::move(place)});
    at = EraseLocked(at);
  }
  const auto end = Clock::now();
  if (!answers.empty()) moved_ = end;
  next_ = end + std::max<Clock::duration>(kPeriod, kMostWork * (end - begun));
  return answers;
}

std::vector<AdmissionQueue::Answer> AdmissionQueue::RefuseLocked(Clock::time_point now) {
  std::vector<Answer> answers;
  while (!queue_.empty() && std::max(moved_, queue_.front().since) + still_ <= now) {
    ++counters_->refused_runs;
    answers.push_back({std::move(queue_.front().request.done), queue_.front().full});
    EraseLocked(queue_.begin());
  }
  return answers;
}

void AdmissionQueue::Loop() {
  MutexLock lock(mutex_);
  while (!stopped_) {
    if (queue_.empty()) {
      changed_.Wait(lock);
      continue;
    }
    const auto refused = std::max(moved_, queue_.front().since) + still_;
    const auto due = retry_ ? std::min(next_, refused) : refused;
    const auto now = Clock::now();
    if (now < due) {
      changed_.WaitUntil(lock, due);
      continue;
    }
    std::vector<Answer> answers = now < refused ? AdmitLocked() : RefuseLocked(now);
    lock.Unlock();
    for (Answer& answer : answers) answer.done(std::move(answer.place));
    answers.clear();
    lock.Lock();
  }
}

}  // namespace plumbline::server
