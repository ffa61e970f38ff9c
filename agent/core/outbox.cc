#include "agent/core/outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace plumbline::agent {
namespace {

constexpr const char* kSampleCause = "sample-queue-full";  // counts samples; their summaries stay
constexpr const char* kEvidenceCause = "queue-full";
constexpr const char* kRejectedCause = "rejected";

}  // namespace

void Outbox::Push(SealedBatch batch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++pushed_;
  bytes_ += batch.body->size();
  queue_.push_back({0, std::move(batch), 1, false});
  if (OverLimits()) Shrink();
}

std::optional<Outbox::Numbered> Outbox::TakeNext() {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A numbered batch can no longer merge into another: half of the queue may be on its way.
  const uint64_t window = std::max<uint64_t>(1, limits_.batches / 2);
  if (sent_ == queue_.size() || sent_ >= window) return std::nullopt;
  Entry& entry = queue_[sent_++];
  if (entry.sequence == 0) entry.sequence = ++last_sequence_;
  return Numbered{entry.sequence, entry.batch.body};
}

bool Outbox::Restart(uint64_t acknowledged) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    sent_ = 0;
    if (acknowledged < acknowledged_) return true;
  }
  Acknowledge(acknowledged);
  return false;
}

void Outbox::Acknowledge(uint64_t sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  acknowledged_ = std::max(acknowledged_, std::min(sequence, last_sequence_));
  while (!queue_.empty() && queue_.front().sequence != 0 && queue_.front().sequence <= sequence) {
    bytes_ -= queue_.front().batch.body->size();
    settled_ += queue_.front().pushes;
    queue_.pop_front();
    if (sent_ > 0) --sent_;
  }
}

void Outbox::Reject(uint64_t sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto refused = std::find_if(queue_.begin(), queue_.end(), [&](const Entry& e) {
    return e.sequence == sequence && sequence != 0;
  });
  if (refused == queue_.end()) return;
  ++rejected_;
  if (refused->carried) return;
  v1::Batch rest = Parsed(refused->batch);
  DropEvidence(&rest, kRejectedCause, names_.get());
  // How far the source has come: an older word must not follow a newer one.
  if (std::any_of(std::next(refused), queue_.end(),
                  [](const Entry& later) { return later.batch.progress; })) {
    rest.clear_progress();
  }
  queue_.push_back({0, Seal(rest), 0, true});
  bytes_ += queue_.back().batch.body->size();
}

uint64_t Outbox::pushed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return pushed_;
}

uint64_t Outbox::settled() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return settled_;
}

Outbox::State Outbox::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  State s;
  s.bytes = bytes_;
  s.batches = queue_.size();
  s.unsent = queue_.size() - sent_;
  for (const Entry& e : queue_) s.items += e.batch.items;
  s.acknowledged = acknowledged_;
  s.next_sequence =
      queue_.empty() || queue_.front().sequence == 0 ? last_sequence_ + 1 : queue_.front().sequence;
  s.rejected = rejected_;
  return s;
}

void Outbox::Replace(size_t index, SealedBatch batch) {
  bytes_ -= queue_[index].batch.body->size();
  bytes_ += batch.body->size();
  queue_[index].batch = std::move(batch);
}

void Outbox::Shrink() {
  // To 7/8 of the limits, so that a queue at its limit is not searched at each push.
  const auto roomy = [&] {
    return bytes_ <= limits_.bytes - limits_.bytes / 8 &&
           queue_.size() <= limits_.batches - limits_.batches / 8;
  };
  while (bytes_ > limits_.bytes - limits_.bytes / 8 && DropOldestSamples()) {
  }
  MergeUnnumbered();
  while (!roomy() && DropOldestEvidence()) MergeUnnumbered();
}

bool Outbox::DropOldestSamples() {
  for (size_t i = 0; i < queue_.size(); ++i) {
    if (queue_[i].batch.samples == 0) continue;
    Replace(i, WithoutSamples(queue_[i].batch, kSampleCause));
    return true;
  }
  return false;
}

bool Outbox::DropOldestEvidence() {
  for (size_t i = 0; i < queue_.size(); ++i) {
    if (queue_[i].batch.hollow()) continue;
    Replace(i, WithoutEvidence(queue_[i].batch, kEvidenceCause, names_.get()));
    return true;
  }
  return false;
}

void Outbox::MergeUnnumbered() {
  for (size_t i = 1; i < queue_.size();) {
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
    bytes_ -= newer.batch.body->size();
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace plumbline::agent
