// The part of the outbox that uses the spool.
#include <algorithm>
#include <utility>

#include "transport/outbox.h"

namespace plumbline::transport {
namespace {

constexpr const char* kCrowded = "sample-spool-full";
constexpr const char* kDamaged = "spool-damaged";

// Returns an empty batch that counts the lost items: the number is taken, so a batch must be sent
// under it.
SealedBatch Substitute(const v1::Source& source, uint64_t items) {
  v1::Batch batch;
  *batch.add_sources() = source;
  if (items != 0) AddLoss(&batch, kDamaged, nullptr, items, 0, 0);
  return Seal(batch);
}

// Returns true for the report of a refusal.
bool ReportsRefusal(const SealedBatch& sealed) {
  if (!sealed.hollow()) return false;
  const v1::Batch batch = Parsed(sealed);
  return std::any_of(batch.losses().begin(), batch.losses().end(),
                     [](const v1::Loss& l) { return l.cause() == "rejected"; });
}

}  // namespace

void Outbox::AdoptSpool() {
  adopted_ = spool_->last_sequence() != 0;
  last_sequence_ = sent_through_ = spool_->last_sequence();
  loaded_through_ = acknowledged_ = spool_->first_sequence() - 1;
  sets_.assign(spool_->series_sets().begin(), spool_->series_sets().end());
  if (!spool_->damaged_end()) return;
  // Added at the end. The number of lost items is unknown, so they count as one.
  queue_.push_back({0, Substitute(spool_->source(), 1), 0, true});
  bytes_ += queue_.back().batch.body->size();
}

uint64_t Outbox::OnDiskAlone() const {
  if (spool_ == nullptr || spool_->last_sequence() <= loaded_through_) return 0;
  return spool_->last_sequence() - loaded_through_;
}

// Writes all batches that the spool accepts, in order.
void Outbox::Spill() {
  while (spooled_ < queue_.size() && SpillNext()) {
  }
}

bool Outbox::SpillNext() {
  const bool sent = spooled_ < sent_;
  if (!sent && queue_[spooled_].batch.samples != 0 &&
      spool_->Crowded(queue_[spooled_].batch.body->size())) {
    Replace(spooled_, WithoutSamples(queue_[spooled_].batch, kCrowded));
  }
  Entry& entry = queue_[spooled_];
  const uint64_t sequence = entry.sequence != 0 ? entry.sequence : last_sequence_ + 1;
  const bool others_before = OnDiskAlone() != 0;
  if (!spool_->Append(sequence, entry.batch).ok()) return false;
  entry.sequence = sequence;
  last_sequence_ = std::max(last_sequence_, sequence);
  if (!others_before) {
    loaded_through_ = sequence;
    ++spooled_;
    return true;
  }
  if (entry.pushes != 1) merged_[sequence] = entry.pushes;
  Erase(spooled_);
  return true;
}

// Removes from memory the last batch that is also on disk.
void Outbox::EvictLast() {
  const Entry& entry = queue_[spooled_ - 1];
  if (entry.pushes != 1) merged_[entry.sequence] = entry.pushes;
  loaded_through_ = entry.sequence - 1;
  Erase(spooled_ - 1);
}

uint64_t Outbox::PushesOf(uint64_t sequence) {
  const auto found = merged_.find(sequence);
  if (found == merged_.end()) return 1;
  const uint64_t pushes = found->second;
  merged_.erase(found);
  return pushes;
}

void Outbox::InsertLoaded(Entry entry) {
  loaded_through_ = entry.sequence;
  bytes_ += entry.batch.body->size();
  queue_.insert(queue_.begin() + static_cast<std::ptrdiff_t>(spooled_++), std::move(entry));
}

// Loads the next batch that is only on disk.
void Outbox::LoadNext() {
  spool_->SeekTo(loaded_through_ + 1);
  Spool::Read read = spool_->Next();
  if (read.kind == Spool::Read::Kind::kBatch) {
    const bool carried = ReportsRefusal(read.batch);
    return InsertLoaded({read.sequence, std::move(read.batch), PushesOf(read.sequence), carried});
  }
  if (read.kind == Spool::Read::Kind::kEnd) {  // removed by another process: counts as damaged
    read.sequence = loaded_through_ + 1;
    read.through = spool_->last_sequence();
    read.items = read.through - loaded_through_;
  }
  LoadLost(read);
}

void Outbox::LoadLost(const Spool::Read& lost) {
  for (uint64_t sequence = lost.sequence; sequence <= lost.through; ++sequence) {
    const uint64_t items = sequence == lost.sequence ? lost.items : 0;
    InsertLoaded({sequence, Substitute(spool_->source(), items), PushesOf(sequence), false});
  }
}

// If the server holds more than was sent on this stream, skips batches that are only on disk.
void Outbox::SkipOnDisk(uint64_t acknowledged) {
  if (spooled_ != 0) return;
  const uint64_t through = std::min(acknowledged, spool_->last_sequence());
  for (; loaded_through_ < through; ++loaded_through_) settled_ += PushesOf(loaded_through_ + 1);
}

}  // namespace plumbline::transport
