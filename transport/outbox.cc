#include "transport/outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace plumbline::transport {
namespace {

constexpr const char* kQueueFull = "queue-full";
constexpr const char* kRejectedCause = "rejected";

std::string SpoolPathOf(const Spool* spool) { return spool == nullptr ? "" : spool->path(); }

}  // namespace

Outbox::Outbox(OutboxLimits limits, std::unique_ptr<Spool> spool)
    : limits_(limits), spool_(std::move(spool)), spool_path_(SpoolPathOf(spool_.get())) {
  if (spool_ != nullptr) AdoptSpool();
}

void Outbox::Push(SealedBatch batch) {
  const MutexLock lock(mutex_);
  ++pushed_;
  bytes_ += batch.body->size();
  if (batch.sets != 0) KeepSets(Parsed(batch));
  queue_.push_back({0, std::move(batch), 1, false});
  if (spool_ != nullptr) Spill();
  if (OverLimits()) Shrink();
}

void Outbox::KeepSets(const v1::Batch& batch) {
  for (const v1::SeriesSet& set : batch.series_sets()) {
    const bool known = std::any_of(sets_.begin(), sets_.end(),
                                   [&](const v1::SeriesSet& s) { return s.id() == set.id(); });
    if (!known) sets_.push_back(set);
  }
}

std::optional<Outbox::Numbered> Outbox::TakeNext() {
  const MutexLock lock(mutex_);
  // A numbered batch can no longer merge into another, so at most half of the queue may be in
  // flight. With a spool, batches wait on disk instead.
  const uint64_t window = std::max<uint64_t>(1, limits_.batches / 2);
  if (sent_ >= window) return std::nullopt;
  if (spool_ != nullptr) {
    if (sent_ > 0 && sent_bytes_ > limits_.bytes / 2) return std::nullopt;
    if (sent_ == spooled_ && OnDiskAlone() != 0) LoadNext();
  }
  if (sent_ == queue_.size()) return std::nullopt;
  Entry& entry = queue_[sent_++];
  if (entry.sequence == 0) entry.sequence = ++last_sequence_;
  sent_bytes_ += entry.batch.body->size();
  sent_through_ = std::max(sent_through_, entry.sequence);
  return Numbered{entry.sequence, entry.batch.body, queue_.size() - sent_ + OnDiskAlone()};
}

bool Outbox::Restart(uint64_t acknowledged) {
  {
    const MutexLock lock(mutex_);
    sent_ = 0;
    sent_bytes_ = 0;
    if (acknowledged < acknowledged_) return true;
    // A dead process may have sent more than it could spool.
    if (adopted_) last_sequence_ = sent_through_ = std::max(last_sequence_, acknowledged);
  }
  Acknowledge(acknowledged);
  return false;
}

void Outbox::Acknowledge(uint64_t sequence) {
  const MutexLock lock(mutex_);
  sequence = std::min(sequence, sent_through_);
  acknowledged_ = std::max(acknowledged_, sequence);
  ForgetThrough(sequence);
  if (spool_ == nullptr) return;
  SkipOnDisk(sequence);
  ForgetThrough(sequence);  // batches that follow those on disk
  spool_->Acknowledge(sequence);
}

void Outbox::ForgetThrough(uint64_t sequence) {
  while (!queue_.empty() && queue_.front().sequence != 0 && queue_.front().sequence <= sequence) {
    if (spooled_ == 0 && OnDiskAlone() != 0)
      return;  // this batch follows those that are only on
               // disk
    settled_ += queue_.front().pushes;
    loaded_through_ = std::max(loaded_through_, queue_.front().sequence);
    Erase(0);
  }
}

void Outbox::Reject(uint64_t sequence) {
  const MutexLock lock(mutex_);
  const auto refused = std::find_if(queue_.begin(), queue_.end(), [&](const Entry& e) {
    return e.sequence == sequence && sequence != 0;
  });
  if (refused == queue_.end()) return;
  ++rejected_;
  v1::Batch rest = Parsed(refused->batch);
  // The server may refuse the report of a refusal, too, because of its names.
  if (refused->carried && !DropNames(&rest)) return;
  DropEvidence(&rest, kRejectedCause, sets_);
  // An older progress report must not follow a newer one.
  const bool newer_word =
      OnDiskAlone() != 0 || std::any_of(std::next(refused), queue_.end(),
                                        [](const Entry& later) { return later.batch.progress; });
  if (newer_word) rest.clear_progress();
  queue_.push_back({0, Seal(rest), 0, true});
  bytes_ += queue_.back().batch.body->size();
}

uint64_t Outbox::pushed() const {
  const MutexLock lock(mutex_);
  return pushed_;
}

uint64_t Outbox::settled() const {
  const MutexLock lock(mutex_);
  return settled_;
}

Outbox::State Outbox::state() const {
  const MutexLock lock(mutex_);
  State s;
  const uint64_t on_disk = OnDiskAlone();
  s.bytes = bytes_;
  s.batches = queue_.size() + on_disk;
  s.unsent = s.batches - sent_;
  for (const Entry& e : queue_) s.items += e.batch.items;
  s.spooled = spooled_ + on_disk;
  s.acknowledged = acknowledged_;
  if (spooled_ == 0 && on_disk != 0) {
    s.next_sequence = loaded_through_ + 1;
  } else if (queue_.empty() || queue_.front().sequence == 0) {
    s.next_sequence = last_sequence_ + 1;
  } else {
    s.next_sequence = queue_.front().sequence;
  }
  s.rejected = rejected_;
  s.dropped = dropped_;
  return s;
}

SeriesSets Outbox::series_sets() const {
  const MutexLock lock(mutex_);
  return sets_;
}

int64_t Outbox::OldestUnsentStep() {
  const MutexLock lock(mutex_);
  if (spool_ != nullptr && sent_ == spooled_ && OnDiskAlone() != 0) LoadNext();
  int64_t oldest = kNoStep;
  for (size_t i = sent_; i < queue_.size(); ++i) {
    oldest = std::min(oldest, queue_[i].batch.first_step);
  }
  return oldest;
}

void Outbox::Replace(size_t index, SealedBatch batch) {
  const uint64_t before = queue_[index].batch.body->size();
  bytes_ = bytes_ - before + batch.body->size();
  if (index < sent_) sent_bytes_ = sent_bytes_ - before + batch.body->size();
  queue_[index].batch = std::move(batch);
}

void Outbox::Erase(size_t index) {
  const uint64_t size = queue_[index].batch.body->size();
  bytes_ -= size;
  if (index < sent_) {
    --sent_;
    sent_bytes_ -= size;
  }
  if (index < spooled_) --spooled_;
  queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(index));
}

// Returns the cause of a drop in memory: the first limit that was reached.
std::string Outbox::Cause() const { return spool_ == nullptr ? kQueueFull : spool_->refusal(); }

void Outbox::Shrink() {
  // Shrinks to 7/8 of the limits, so that a full queue is not searched at each push.
  const auto roomy = [&]() PLUMB_REQUIRES(mutex_) {
    return bytes_ <= limits_.bytes - limits_.bytes / 8 &&
           queue_.size() <= limits_.batches - limits_.batches / 8;
  };
  while (!roomy() && spooled_ > sent_) EvictLast();
  while (bytes_ > limits_.bytes - limits_.bytes / 8 && DropOldestSamples()) {
  }
  MergeUnnumbered();
  while (!roomy() && DropOldestEvidence()) MergeUnnumbered();
}

// Batches on disk have a number and a fixed content, so only later batches are dropped.
bool Outbox::DropOldestSamples() {
  for (size_t i = spooled_; i < queue_.size(); ++i) {
    if (queue_[i].batch.samples == 0) continue;
    Replace(i, WithoutSamples(queue_[i].batch, "sample-" + Cause()));  // counts samples
    return true;
  }
  return false;
}

bool Outbox::DropOldestEvidence() {
  for (size_t i = spooled_; i < queue_.size(); ++i) {
    if (queue_[i].batch.hollow()) continue;
    dropped_ += queue_[i].batch.items;
    Replace(i, WithoutEvidence(queue_[i].batch, Cause(), sets_));
    return true;
  }
  return false;
}

void Outbox::MergeUnnumbered() {
  for (size_t i = spooled_ + 1; i < queue_.size();) {
    Entry& older = queue_[i - 1];
    Entry& newer = queue_[i];
    const bool free = older.sequence == 0 && newer.sequence == 0;
    if (!free || !older.batch.hollow() || !newer.batch.hollow()) {
      ++i;
      continue;
    }
    Replace(i - 1, Merged(older.batch, newer.batch));
    older.pushes += newer.pushes;
    older.carried &= newer.carried;
    Erase(i);
  }
}

}  // namespace plumbline::transport
